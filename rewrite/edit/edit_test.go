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
	y.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 3}}})
	n := g.AddNode("Elu", []*onnx.Value{x}, []*onnx.Value{y}, onnx.FloatAttr("alpha", 2))
	g.AddOutput(y)
	before := g.Text()
	var c Change
	axes := c.AddInitializer(g, onnx.NewInt64s("axes", []int64{0}))
	wide := g.NewValue("wide")
	c.AddNode(g, "Unsqueeze", []*onnx.Value{x, axes}, []*onnx.Value{wide})
	c.SetInput(n, 0, wide)
	c.SetAttr(n, onnx.FloatAttr("alpha", 1))
	c.SetAttr(n, onnx.FloatAttr("beta", 1))
	c.SetOverload(n, "other")
	c.SetType(y, onnx.Type{DataType: onnx.Float16})
	if g.Text() == before || n.Overload != "other" || len(x.Uses()) != 1 {
		t.Fatalf("not changed:\n%s", g.Text())
	}
	c.Undo()
	if typ, _ := y.Type(); g.Text() != before || n.Overload != "" || typ.DataType != onnx.Float || len(typ.Dims) != 1 {
		t.Errorf("not as it was: %v\n%s\nbefore\n%s", typ, g.Text(), before)
	}
	if len(x.Uses()) != 1 || x.Uses()[0].Node != n || len(g.Initializers()) != 0 {
		t.Errorf("x is read %d times, and there are %d initializers", len(x.Uses()), len(g.Initializers()))
	}
}
