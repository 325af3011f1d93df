package reference

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// An override sees the nodes of a loop's body, may evaluate them as usual, and may pass on a value that represents a
// weight.
func TestOverride(t *testing.T) {
	m := onnx.New(10, 20)
	w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{3, 5}))
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	trips := m.Graph.AddInitializer(onnx.NewInt64s("trips", []int64{2}))
	body := m.Graph.NewSubgraph("body")
	for _, name := range []string{"i", "cond", "sum"} {
		body.AddInput(name, onnx.Type{})
	}
	sum := body.NewValue("sum")
	body.AddNode("Add", []*onnx.Value{body.Inputs[2], w}, []*onnx.Value{sum})
	body.AddOutput(body.Inputs[1])
	body.AddOutput(sum)
	y := m.Graph.NewValue("y")
	m.Graph.AddNode("Loop", []*onnx.Value{trips, nil, x}, []*onnx.Value{y}, onnx.GraphAttr("body", body))

	other := NewFloats(onnx.Float, []int{2}, []float64{10, 20})
	added := 0
	override := func(n *onnx.Node, s *Scope) ([]*Tensor, error) {
		if n.OpType != "Add" {
			return nil, nil
		}
		if s.Bound(w) != nil {
			t.Error("a constant is bound before anybody bound it")
		}
		if c, err := s.Value(w); err != nil || c.F[1] != 5 {
			t.Errorf("the constant is %v, %v", c, err)
		}
		if added++; added == 1 {
			return nil, nil
		}
		s.Bind(w, other)
		return s.Op(n)
	}
	env := map[*onnx.Value]*Tensor{x: NewFloats(onnx.Float, []int{2}, []float64{1, 1})}
	e := NewForOpset(20, nil, Options{Override: override})
	if err := e.Eval(m.Graph.Nodes, env); err != nil {
		t.Fatal(err)
	}
	if got := env[y].F; added != 2 || got[0] != 14 || got[1] != 26 { // 1 + 3 as usual, then 10; 1 + 5, then 20
		t.Errorf("%d nodes, %v", added, got)
	}
}
