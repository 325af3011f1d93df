package op

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The sizes of real models: the rows of weights of 7B and 70B models, a vocabulary, heads, experts, and the keys of an
// image and of half a minute of sound.
const (
	WideHidden     = 4096
	WideInner      = 14336
	WideVocabulary = 151936
	WideHeads      = 128
	WideExperts    = 512
	WideImage      = 577
	WideSound      = 1500
)

// WideRow is a shape of X with the row of a wide layer.
var WideRow = []int64{3, WideInner}

// FormMaker returns a form. Attributes that it is not given have the first value of their grid.
type FormMaker = func(dims [][]int64, attrs ...*onnx.Attribute) Form

// wideForms returns forms of an op at such sizes. A dimension that is not summed over is small.
func (o *Op) wideForms() []Form {
	return o.Wide(func(dims [][]int64, attrs ...*onnx.Attribute) Form {
		for _, a := range o.Attributes {
			if !slices.ContainsFunc(attrs, func(x *onnx.Attribute) bool { return x.Name == a.Name }) {
				attrs = append(attrs, a.grid()[0])
			}
		}
		return Form{attrs, dims}
	})
}

// WideExamples lists sites at the widths of real models. The list is empty for a combination that computes the same as
// another one: only equal types count, and with quantized weights only float32 and one type of scales for each code.
func (o *Op) WideExamples(c Combination, opset int64) []Site {
	first := onnx.Undefined
	for _, variable := range []string{"T", "B", "W", "V", "G"} {
		t, ok := c.Types[variable]
		switch {
		case !ok:
		case first == onnx.Undefined:
			first = t
		case t != first:
			return nil
		}
	}
	if o.Family.Stored && (first != F32 && first != onnx.Undefined || c.Types["S"] == F16 || c.Types["D"] == F16) {
		return nil
	}
	return o.sites(o.wideForms(), c, opset)
}
