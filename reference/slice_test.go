package reference

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A part of a tensor without elements has its own shape.
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

// Slice follows the standard's text, onnx's shape inference and onnxruntime: an index is clamped into the dimension,
// and a slice that goes down takes the first element even if it starts before it. (numpy does not.)
func TestSliceLength(t *testing.T) {
	for _, c := range []struct{ start, end, step, want int64 }{
		{0, 5, 1, 5},
		{-2, 100, 1, 2},
		{7, 9, 1, 0},
		{-1, -100, -1, 5},
		{3, 0, -2, 2},
		{-100, -200, -1, 1},
		{0, 4, -1, 0},
	} {
		if got := SliceLength(c.start, c.end, c.step, 5); got != c.want {
			t.Errorf("%d:%d:%d of 5 has %d elements, want %d", c.start, c.end, c.step, got, c.want)
		}
	}
}
