package convert

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// declare gives every tensor of the main graph and its subgraphs the type that is known of it. Where a dimension is not
// known to be a number, the declaration that was there stays.
func declare(m *onnx.Model, facts *infer.Facts) {
	eachValue(m, func(v *onnx.Value) {
		t, ok := facts.Type(v)
		if !ok {
			return
		}
		if old, ok := v.Type(); ok && old.HasShape && len(old.Dims) == len(t.Dims) {
			for i, d := range old.Dims {
				if t.Dims[i].Value < 0 {
					t.Dims[i] = d
				}
			}
		}
		v.SetType(t)
	})
}

// Dynamic lists the values of the main graph and its subgraphs that are not declared as tensors of a known shape, in
// the order of the nodes: after Shapes with all inputs those whose shape depends on data, and those that hold no
// tensor.
func Dynamic(m *onnx.Model) []string {
	var names []string
	eachValue(m, func(v *onnx.Value) {
		t, ok := v.Type()
		known := ok && t.HasShape
		for _, d := range t.Dims {
			known = known && d.Value >= 0
		}
		if !known {
			names = append(names, v.Name)
		}
	})
	return names
}
