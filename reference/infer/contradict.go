package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Contradicts reports whether the declared shape of v differs from the inferred one: another rank, or a dimension of
// another size in some world. Exporters may declare the sizes of their example this way. Dimensions with names other
// than those of the model's inputs may have any size.
func (f *Facts) Contradicts(v *onnx.Value, inputs map[string]bool) bool {
	t, ok := v.Type()
	if !ok || !t.HasShape {
		return false
	}
	for w := range Worlds {
		shape := f.of(v).Shape[w]
		if shape == nil {
			continue
		}
		if len(shape) != len(t.Dims) {
			return true
		}
		for axis, d := range t.Dims {
			size := d.Value
			if d.Param != "" {
				i := slices.IndexFunc(f.symbols, func(s *symbol) bool { return s.name == d.Param })
				if i < 0 || !inputs[d.Param] {
					continue
				}
				size = f.symbols[i].at(w)
			}
			if size >= 0 && shape[axis] >= 0 && size != shape[axis] {
				return true
			}
		}
	}
	return false
}
