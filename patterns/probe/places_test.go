package probe

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestStoredOnce: stacked weights of all experts with the same elements are one weight, if they are not tiny.
func TestStoredOnce(t *testing.T) {
	b := onnxtest.New(20)
	weight := func(last float32, dims ...int64) *onnx.Value {
		numbers := make([]float32, match.Elements(dims))
		numbers[len(numbers)-1] = last
		return b.Graph.AddInitializer(onnx.NewFloat32s("w", dims, numbers))
	}
	for name, c := range map[string]struct {
		v, w *onnx.Value
		same bool
	}{
		"stacked":          {weight(1, 2, 3, 4), weight(1, 2, 3, 4), true},
		"of 64 bytes":      {weight(2, 2, 2, 4), weight(2, 2, 2, 4), true},
		"of fewer":         {weight(3, 1, 3, 5), weight(3, 1, 3, 5), false},
		"another number":   {weight(4, 2, 3, 4), weight(5, 2, 3, 4), false},
		"another shape":    {weight(6, 2, 3, 4), weight(6, 2, 4, 3), false},
		"a single matrix":  {weight(7, 6, 4), weight(7, 6, 4), false},
		"a computed value": {b.Input("x", onnx.Float, 2), b.Input("y", onnx.Float, 2), false},
	} {
		g := match.New(b.Graph, infer.Analyze(b.Model), nil)
		for _, v := range []*onnx.Value{c.v, c.w, c.v, c.w} {
			want := v
			if c.same {
				want = c.v
			}
			if got := storedOnce(g, v); got != want {
				t.Errorf("%s: %q is stored as %q, want %q", name, v.Name, got.Name, want.Name)
			}
		}
	}
}

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
	rows, columns := node("Gather", onnx.IntAttr("axis", 1)), node("Gather", onnx.IntAttr("axis", 2))
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
		{[]step{{columns, []*reference.Tensor{ints(0, 1, 1, 3)}}}, 0, "none 3x4"},
		{[]step{{reshape, []*reference.Tensor{ints(2, 6, 2)}}, {rows, []*reference.Tensor{ints(0, 1, 1, 3)}}}, 0,
			"none 4x2"},
		{[]step{{turned, nil}, {reshape, []*reference.Tensor{ints(2, 12)}},
			{reshape, []*reference.Tensor{ints(2, 4, 3)}}}, 1, "w+12 4x3 by 1, 4"},
		{[]step{{concat, []*reference.Tensor{of(v)}}}, 0, "none 6x4"},
		{[]step{{concat, []*reference.Tensor{of(v)}}, {slice, []*reference.Tensor{ints(3), ints(6), ints(1)}}}, 1,
			"v+12 3x4 by 4, 1"},
		{[]step{{concat, []*reference.Tensor{of(v)}}, {slice, []*reference.Tensor{ints(2), ints(4), ints(1)}}}, 0,
			"none 2x4"},
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
	if len(p.sources) != 2 {
		t.Errorf("two weights are %d sources", len(p.sources))
	}
	wide := expanded(of(w), []int{5, 2, 3, 4})
	if m := p.matrix(wide, 3*24+12, 3, 4, 4, 1); m.Source != w || m.Offset != 12 {
		t.Errorf("expanded: %v", m)
	}
}
