package probe

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestPlaces moves the places of a weight by nodes, and reads from the result where its matrices are stored.
func TestPlaces(t *testing.T) {
	g := onnx.New(10, 20).Graph
	weight := func(name string, dims ...int64) *onnx.Value {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return g.AddInitializer(onnx.NewFloat32s(name, dims, make([]float32, n)))
	}
	w, v := weight("w", 2, 3, 4), weight("v", 2, 3, 4)
	node := func(op string, attrs ...*onnx.Attribute) *onnx.Node {
		return g.AddNode(op, nil, []*onnx.Value{g.NewValue("")}, attrs...)
	}
	ints := func(list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int64, []int{len(list)}, list) }
	e := reference.NewForOpset(20, nil, reference.Options{Exact: true})
	turned := node("Transpose", onnx.IntsAttr("perm", []int64{0, 2, 1}))
	reshape, slice, gather, concat := node("Reshape"), node("Slice"), node("Gather"),
		node("Concat", onnx.IntAttr("axis", 1))
	type step struct {
		n      *onnx.Node
		inputs []*reference.Tensor
	}
	var p places
	of := func(v *onnx.Value) *reference.Tensor {
		r, err := p.of(v)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i, test := range []struct {
		steps []step
		place int // of the matrix, among those of the last two axes
		want  string
	}{
		{nil, 1, "w+12 3x4 by 4, 1"},
		{[]step{{turned, nil}}, 1, "w+12 4x3 by 1, 4"},
		{[]step{{slice, []*reference.Tensor{ints(1), ints(4), ints(2), ints(2)}}}, 0, "w+1 3x2 by 4, 2"},
		{[]step{{reshape, []*reference.Tensor{ints(6, 2, 2)}}}, 5, "w+20 2x2 by 2, 1"},
		{[]step{{gather, []*reference.Tensor{ints(1, 1, 0)}}}, 2, "w+0 3x4 by 4, 1"},
		{[]step{{turned, nil}, {reshape, []*reference.Tensor{ints(1, 2, 12)}}}, 0, "none 2x12"},
		{[]step{{turned, nil}, {reshape, []*reference.Tensor{ints(2, 12)}},
			{reshape, []*reference.Tensor{ints(2, 4, 3)}}}, 1, "w+12 4x3 by 1, 4"},
		{[]step{{concat, []*reference.Tensor{of(v)}}}, 0, "none 6x4"},
		{[]step{{concat, []*reference.Tensor{of(v)}}, {slice, []*reference.Tensor{ints(3), ints(6), ints(1)}}}, 1,
			"v+12 3x4 by 4, 1"},
	} {
		x := of(w)
		for _, s := range test.steps {
			out, err := e.Op(s.n, append([]*reference.Tensor{x}, s.inputs...))
			if err != nil || !out[0].IsLazy() {
				t.Fatalf("%d: %s: %v, %v", i, s.n.OpType, out, err)
			}
			x = out[0]
		}
		rows, columns := x.Shape[len(x.Shape)-2], x.Shape[len(x.Shape)-1]
		m := p.matrix(x, test.place*rows*columns, rows, columns, columns, 1)
		got := fmt.Sprintf("none %dx%d", m.In, m.Out)
		if m.Source != nil {
			got = fmt.Sprintf("%s+%d %dx%d by %d, %d", m.Source.Name, m.Offset, m.In, m.Out, m.ByIn, m.ByOut)
		}
		if got != test.want {
			t.Errorf("%d: %s, expected %s", i, got, test.want)
		}
	}
	wide := expanded(of(w), []int{5, 2, 3, 4})
	if m := p.matrix(wide, 3*24+12, 3, 4, 4, 1); m.Source != w || m.Offset != 12 {
		t.Errorf("expanded: %v", m)
	}
}
