package rotary

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// graph builds tables.
type graph struct{ *onnxtest.Builder }

func (g *graph) input(name string, dims ...any) *onnx.Value {
	return g.Input(name, onnx.Float, dims...)
}

func (g *graph) weight(n int64) *onnx.Value {
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i) + 1
	}
	return g.Graph.AddInitializer(onnx.NewFloat32s("weight", []int64{n}, data))
}

// angles builds tables like exporters, from the angles of the pairs, [1, positions, 4].
func (g *graph) angles() *onnx.Value {
	positions := g.Op("Unsqueeze", g.input("positions", 1, "positions"), []int64{2})
	return g.Op("Mul", positions, g.weight(4))
}

func (g *graph) table(columns ...float32) *onnx.Value {
	return g.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{int64(len(columns) / 4), 4}, columns))
}

func TestRepeats(t *testing.T) {
	last := onnx.IntAttr("axis", -1)
	for _, c := range []struct {
		name              string
		build             func(g *graph) *onnx.Value
		halves, neighbors bool
	}{
		{"twice, then cosine, scaled, cast, with an axis for the heads", func(g *graph) *onnx.Value {
			a := g.angles()
			v := g.Op("Mul", g.Op("Cos", g.Op("Concat", a, a, last)), 0.5)
			return g.Op("Unsqueeze", g.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float16))), []int64{1})
		}, true, false},
		{"cosines twice, each computed", func(g *graph) *onnx.Value {
			a := g.angles()
			return g.Op("Concat", g.Op("Cos", a), g.Op("Cos", a), last)
		}, true, false},
		{"each beside its double", func(g *graph) *onnx.Value {
			v := g.Op("Expand", g.Op("Unsqueeze", g.angles(), []int64{3}), []int64{1, 1, 1, 2})
			return g.Op("Sin", g.Op("Reshape", v, []int64{1, -1, 8}))
		}, false, true},
		{"cosines and sines", func(g *graph) *onnx.Value {
			a := g.angles()
			return g.Op("Concat", g.Op("Cos", a), g.Op("Sin", a), last)
		}, false, false},
		{"twice, and its negative", func(g *graph) *onnx.Value {
			a := g.angles()
			return g.Op("Concat", a, g.Op("Neg", a), last)
		}, false, false},
		{"twice, scaled by channels", func(g *graph) *onnx.Value {
			a := g.angles()
			return g.Op("Mul", g.Op("Concat", a, a, last), g.weight(8))
		}, false, false},
		{"twice, three times", func(g *graph) *onnx.Value {
			a := g.angles()
			return g.Op("Concat", a, a, a, last)
		}, false, false},
		{"an input", func(g *graph) *onnx.Value { return g.input("cos", "positions", 8) }, false, false},
		{"rows of a constant", func(g *graph) *onnx.Value {
			return g.Op("Gather", g.table(1, 2, 1, 2, 3, 4, 3, 4), g.input("positions", "positions"))
		}, true, false},
		{"rows of a constant, by neighbors", func(g *graph) *onnx.Value {
			return g.Op("Gather", g.table(1, 1, 2, 2, 3, 3, 4, 4), g.input("positions", "positions"))
		}, false, true},
		{"a constant whose last row differs", func(g *graph) *onnx.Value { return g.table(1, 2, 1, 2, 3, 4, 3, 5) },
			false, false},
		{"columns of a constant", func(g *graph) *onnx.Value {
			return g.Op("Gather", g.table(1, 2, 1, 2, 3, 4, 3, 4), []int64{0, 1, 2, 2}, onnx.IntAttr("axis", 1))
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &graph{onnxtest.New(20)}
			v := c.build(g)
			g.Graph.AddOutput(v)
			view := match.New(g.Graph, infer.Analyze(g.Model), match.NewIndex(match.NewLanguage(Views)))
			if got := Repeats(view, v, false); got != c.halves {
				t.Errorf("by halves: %v", got)
			}
			if got := Repeats(view, v, true); got != c.neighbors {
				t.Errorf("by neighbors: %v", got)
			}
		})
	}
}
