package fit_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestGivenUp searches a chain of x * exp(x), in which any earlier product may be the gate of a later one. The search
// gives up and reports it, but still finds the norms and gated units after the chain, which no pattern lists, and all
// layers of a model with such blocks.
func TestGivenUp(t *testing.T) {
	g := &graph{onnxtest.New(20)}
	x := g.matMul(g.Input("x", onnx.Float, "batch", "sequence", 32), 32)
	for range 200 {
		x = g.Op("Mul", x, g.Op("Exp", x))
	}
	stack(g, g.matMul(x, 32), 3)
	matches, misses := patterns.Builtin().Find(g.Graph, infer.Analyze(g.Model))
	if len(matches) != 6 {
		t.Errorf("%d matches behind a chain, want 3 norms and 3 gated units", len(matches))
	}
	said := 0
	for _, m := range misses {
		if m.Reason.Code == reason.Limit {
			said += m.Reason.Figures["places"].(int)
			if m.Pattern != "fit:GLU" || !m.Anchor.Is("Exp") {
				t.Errorf("the search for %s is given up at %s", m.Pattern, m.Anchor.OpType)
			}
		}
	}
	if said < 100 || said > 200 {
		t.Errorf("the search is given up at %d places", said)
	}

	g = &graph{onnxtest.New(20)}
	stack(g, g.Input("x", onnx.Float, "batch", "sequence", 32), 1000)
	if matches, _ := patterns.Builtin().Find(g.Graph, infer.Analyze(g.Model)); len(matches) != 2000 {
		t.Errorf("%d matches in 1,000 layers, want 2,000", len(matches))
	}
}

// TestManyParts has a Concat of more parts than a region has nodes: no search begins there, so no search is given up.
func TestManyParts(t *testing.T) {
	g, parts := &graph{onnxtest.New(20)}, []*onnx.Value{}
	x := g.Input("x", onnx.Float, "batch", 2000)
	for _, part := range g.Ops(2000, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2000)) {
		parts = append(parts, g.Op("Exp", part))
	}
	g.Output(g.Op("Concat", parts, onnx.IntAttr("axis", -1)))
	_, misses := patterns.Builtin().Find(g.Graph, infer.Analyze(g.Model))
	for _, m := range misses {
		if m.Reason.Code == reason.Limit {
			t.Errorf("the search for %s is given up at %v places", m.Pattern, m.Reason.Figures["places"])
		}
	}
}

func (g *graph) matMul(x *onnx.Value, width int) *onnx.Value {
	return g.Op("MatMul", x, g.matrix(width, width))
}
