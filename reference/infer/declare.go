package infer

import "github.com/mojo-patch/mojo-patch/onnx"

// Type returns the facts about v as a model declares them: numbers for dimensions that are the same in all worlds, the
// name of an input's symbolic dimension for those that equal only this one in every world, and open dimensions
// otherwise. ok is false if the element type or the rank is unknown.
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

// dimName returns the only named symbol with these numbers, or "". Two names may share their numbers because an op
// requires it of these inputs, but may differ if the op broadcasts.
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
