package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// Type returns the facts about v as a model declares them: numbers for dimensions that are the same in all worlds, the
// name of an input's symbolic dimension for those that equal only this one in every world, and open dimensions
// otherwise. ok is false if the element type or the rank is unknown.
func (f *Facts) Type(v *onnx.Value) (t onnx.Type, ok bool) {
	rank, ok := f.Rank(v)
	x := f.of(v)
	if !ok || x.DataType == onnx.Undefined {
		return onnx.Type{}, false
	}
	t = onnx.Type{DataType: x.DataType, HasShape: true, Dims: make([]onnx.Dim, rank)}
	for axis := range rank {
		if d, ok := f.Dim(v, axis); ok {
			t.Dims[axis] = onnx.Dim{Value: d}
			continue
		}
		var numbers [rules.AllWorlds]int64
		for w := range rules.AllWorlds {
			numbers[w] = x.Shape[w][axis]
		}
		t.Dims[axis] = onnx.Dim{Value: -1, Param: f.dimName(numbers)}
	}
	return t, true
}

// dimName returns the only named symbol with these numbers, or "". Two names may share their numbers because an op
// requires it of these inputs, but may differ if the op broadcasts.
func (f *Facts) dimName(numbers [rules.AllWorlds]int64) string {
	name := ""
	for _, s := range f.symbols {
		if s.name == "" || s.at(0) != numbers[0] || s.at(1) != numbers[1] || s.at(2) != numbers[2] ||
			s.settled != numbers[rules.Proof] {
			continue
		}
		if name != "" {
			return ""
		}
		name = s.name
	}
	return name
}
