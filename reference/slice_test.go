package reference

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A part of a tensor without elements has a shape of its own.
func TestSliceOfNothing(t *testing.T) {
	g := onnx.New(10, 20).Graph
	in := []*onnx.Value{g.AddInput("x", onnx.Type{DataType: onnx.Float})}
	for _, v := range []int64{0, 6, 1} { // starts, ends, axes
		in = append(in, g.AddInitializer(onnx.NewInt64s("i", []int64{v})))
	}
	y := g.NewValue("y")
	g.AddNode("Slice", in, []*onnx.Value{y})
	env := map[*onnx.Value]*Tensor{in[0]: NewFloats(onnx.Float, []int{0, 12}, []float64{})}
	if err := NewForOpset(20, nil, Options{}).Eval(g.Nodes, env); err != nil ||
		!slices.Equal(env[y].Shape, []int{0, 6}) {
		t.Errorf("%v, %v", env[y], err)
	}
}
