package edit

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestUndo has a graph as it was after edits of every kind, and can remove what nothing reads any more.
func TestUndo(t *testing.T) {
	m := onnx.New(10, 18)
	g := m.Graph
	x, y := g.AddInput("x", onnx.Type{DataType: onnx.Float}), g.NewValue("y")
	n := g.AddNode("Elu", []*onnx.Value{x}, []*onnx.Value{y}, onnx.FloatAttr("alpha", 2))
	g.AddOutput(y)
	before := g.Text()
	var c Change
	axes := c.AddInitializer(g, onnx.NewInt64s("axes", []int64{0}))
	wide := g.NewValue("wide")
	c.AddNode(g, "Unsqueeze", []*onnx.Value{x, axes}, []*onnx.Value{wide})
	c.SetInput(n, 0, wide)
	if g.Text() == before || len(x.Uses()) != 1 {
		t.Fatalf("not changed:\n%s", g.Text())
	}
	c.Undo()
	if g.Text() != before {
		t.Errorf("not as it was:\n%s\nbefore\n%s", g.Text(), before)
	}
	if len(x.Uses()) != 1 || x.Uses()[0].Node != n || len(g.Initializers()) != 0 {
		t.Errorf("x is read %d times, and there are %d initializers", len(x.Uses()), len(g.Initializers()))
	}
}
