package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

func normAttributes(epsilon float32, after int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", epsilon),
		onnx.IntAttr("scale_after_cast", after)}
}

// judgeOne judges one handmade match and returns its site.
func judgeOne(t *testing.T, m *onnx.Model, match *patterns.Match) SiteReport {
	t.Helper()
	if match.Domain == "" {
		match.Domain = fused.Domain
	}
	rewritetest.OneNode(match, m.Opset(""))
	match.Root = match.Outputs[0].Producer
	match.Nodes = []*onnx.Node{match.Root}
	before := modelBytes(t, m)
	r := apply(t, m, Request{find: foundByHand(func(g *onnx.Graph) []*patterns.Match {
		if g != match.Root.Graph {
			return nil
		}
		return []*patterns.Match{match}
	})})
	if len(r.Sites) != 1 {
		t.Fatalf("%d sites", len(r.Sites))
	}
	if s := r.Sites[0]; (s.Status == Fused) != r.Changed ||
		s.Status == Refused && string(before) != string(modelBytes(t, m)) {
		t.Errorf("%s, changed %v", s.Status, r.Changed)
	}
	return r.Sites[0]
}

func TestWhatOthersReadStays(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	gate, up := b.In("gate", 2, 16), b.In("up", 2, 16)
	sigmoid := b.Op("Sigmoid", gate)
	y := b.Op("Mul", b.Op("Mul", sigmoid, gate), up)
	b.Out(y, 2, 16)
	b.Out(b.Op("Neg", sigmoid), 2, 16)
	want := rewritetest.Evaluate(t, b.Model)
	s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if ops := rewritetest.CountOps(b.Model); s.Status != Fused || ops["Sigmoid"] != 1 || ops["Mul"] != 0 {
		t.Errorf("%s: %s, %v", s.Status, s.Reason, ops)
	}
	got := rewritetest.Evaluate(t, b.Model)
	for name := range want {
		if d, _ := prove.Distance(want[name].F, got[name].F); d > 1e-6 {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}
