package infer

import "github.com/mojo-patch/mojo-patch/onnx"

// Type returns what is known about v as a model would declare it: numbers for the dimensions that are the same in all
// worlds, the name of an input's symbolic dimension for those that equal it and no other in every world, and nothing
// for the rest. ok is false when the element type or the rank is unknown.
func (f *Facts) Type(v *onnx.Value) (t onnx.Type, ok bool) {
	rank, ok := f.Rank(v)
	x := f.of(v)
	if !ok || x.dtype == onnx.Undefined {
		return onnx.Type{}, false
	}
	t = onnx.Type{DataType: x.dtype, HasShape: true, Dims: make([]onnx.Dim, rank)}
	for axis := range rank {
		if d, ok := f.Dim(v, axis); ok {
			t.Dims[axis] = onnx.Dim{Value: d}
			continue
		}
		var numbers [worlds]int64
		for w := range worlds {
			numbers[w] = x.shape[w][axis]
		}
		t.Dims[axis] = onnx.Dim{Value: -1, Param: f.dimName(numbers)}
	}
	return t, true
}

// dimName returns the one named symbol that has these numbers, or nothing: two names may have come to the same numbers
// because an op demands it of these inputs, and be unequal where it broadcasts.
func (f *Facts) dimName(numbers [worlds]int64) string {
	name := ""
	for _, s := range f.symbols {
		if s.name == "" || s.at(0) != numbers[0] || s.at(1) != numbers[1] || s.at(2) != numbers[2] ||
			s.settled != numbers[proof] {
			continue
		}
		if name != "" {
			return ""
		}
		name = s.name
	}
	return name
}
