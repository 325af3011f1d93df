package linear

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// QuantizedForm is a way to store weights, and a use of them.
type QuantizedForm struct {
	Code           string
	Zero, Block    int64
	n, k           int64
	Minus, Twofold bool
	activations    string
	rows           []int64 // leading dimensions of X
	bias           bool
}

// quantizedForms covers the formats of GGUF, MXFP4 and DeepSeek-V3, each with its kinds of activations, with few rows
// and with so many that kernels unpack the weights first.
var quantizedForms = []QuantizedForm{
	{codeInt4, 8, 32, 37, 96, false, false, ActivationsInt16, []int64{2, 1}, false}, // q4_0
	{codeInt4, 8, 32, 37, 96, false, false, ActivationsInt8, []int64{3}, true},
	{codeInt4, 8, 32, 5, 96, false, false, ActivationsFloat, []int64{2, 2}, true},
	{codeInt4, 0, 32, 37, 96, true, false, ActivationsInt16, []int64{20}, true}, // q4_1
	{codeInt4, 0, 32, 37, 256, true, false, ActivationsInt8, []int64{1, 19}, false},
	{codeInt4, 0, 32, 37, 96, true, false, ActivationsFloat, []int64{1}, false},
	{codeInt4, 0, 16, 37, 256, true, true, ActivationsInt16, []int64{7}, false},   // q2_K
	{codeInt4, 0, 32, 37, 512, true, true, ActivationsInt16, []int64{1, 3}, true}, // q4_K
	{codeInt4, 0, 32, 37, 256, true, true, ActivationsInt8, []int64{33}, false},
	{codeInt4, 0, 32, 5, 256, true, true, ActivationsFloat, []int64{2}, false},
	{codeInt8, 128, 32, 37, 96, false, false, ActivationsInt16, []int64{1}, false}, // q8_0, q5_0
	{codeInt8, 128, 32, 37, 96, false, false, ActivationsInt8, []int64{2, 17}, true},
	{codeInt8, 128, 32, 37, 96, false, false, ActivationsInt8, []int64{5}, true},
	{codeInt8, 128, 32, 5, 96, false, false, ActivationsFloat, []int64{3}, false},
	{codeInt8, 128, 32, 5, 96, false, false, ActivationsInt16, []int64{0, 2}, false},
	{codeInt8, 112, 32, 37, 96, true, false, ActivationsInt16, []int64{18}, false}, // q5_1
	{codeInt8, 112, 32, 37, 256, true, true, ActivationsInt16, []int64{4}, true},   // q5_K
	{codeInt8, 112, 32, 37, 256, true, true, ActivationsInt8, []int64{16}, false},
	{codeInt8, 128, 16, 37, 256, false, true, ActivationsInt16, []int64{2}, false}, // q6_K
	{codeInt8, 128, 16, 37, 256, false, true, ActivationsInt8, []int64{21}, true},
	{codeInt8, 128, 16, 5, 256, false, true, ActivationsFloat, []int64{1}, true},
	{codeE2M1, 0, 32, 37, 96, false, false, ActivationsInt16, []int64{3}, true}, // MXFP4
	{codeE2M1, 0, 32, 37, 96, false, false, ActivationsInt8, []int64{22}, false},
	{codeE2M1, 0, 32, 5, 96, false, false, ActivationsFloat, []int64{1}, false},
	{CodeE4M3, 0, 128, 37, 256, false, false, ActivationsFloat, []int64{3}, true}, // DeepSeek-V3
	{CodeE4M3, 0, 128, 37, 512, false, false, ActivationsFloat, []int64{2, 9}, false},
	{CodeE4M3, 0, 128, 5, 256, false, false, ActivationsFP8, []int64{1}, false},
	{CodeE4M3, 0, 128, 37, 256, false, false, ActivationsFP8, []int64{19}, true},
}

// of reports whether the weights have the attributes of a site.
func (f QuantizedForm) of(s op.Site) bool {
	attrs := op.Read[Linear](s.Attributes)
	return f.Code == attrs.Code && f.Zero == attrs.Zero && f.Block == attrs.Block &&
		f.n == attrs.N && f.k == attrs.K
}

func linearExamples(s op.Site) [][][]int64 {
	var list [][][]int64
	for _, f := range quantizedForms {
		if f.of(s) && f.activations == op.Read[Linear](s.Attributes).Activations {
			weights := LinearWeights(nil, s).Dims(f.Minus, f.Twofold)
			dims := append([][]int64{append(slices.Clone(f.rows), f.k)}, weights...)
			if f.bias {
				dims = append(dims, []int64{f.n})
			}
			list = append(list, dims)
		}
	}
	return list
}

// embeddingExamples returns the forms with rows as the shape of ids.
func embeddingExamples(s op.Site) [][][]int64 {
	var list [][][]int64
	for _, f := range quantizedForms {
		if f.of(s) && (f.activations == ActivationsInt16 || f.Code == CodeE4M3) {
			weights := Weights(nil, s, EmbeddingCodes).Dims(f.Minus, f.Twofold)
			list = append(list, append([][]int64{f.rows}, weights...))
		}
	}
	return list
}

// Formats of GGUF, gpt-oss and DeepSeek.
var (
	Q40   = QuantizedForm{Code: codeInt4, Zero: 8, Block: 32}
	Q41   = QuantizedForm{Code: codeInt4, Block: 32, Minus: true}
	Q4K   = QuantizedForm{Code: codeInt4, Block: 32, Minus: true, Twofold: true}
	Q80   = QuantizedForm{Code: codeInt8, Zero: 128, Block: 32}
	Q51   = QuantizedForm{Code: codeInt8, Zero: 112, Block: 32, Minus: true}
	Q6K   = QuantizedForm{Code: codeInt8, Zero: 128, Block: 16, Twofold: true}
	MXFP4 = QuantizedForm{Code: codeE2M1, Block: 32}
	FP8   = QuantizedForm{Code: CodeE4M3, Block: 128}
)

// wideQuantized lists the formats with long rows, and with the rows of a vocabulary. products adds several tiles of
// them.
func wideQuantized(form func(f QuantizedForm, n, k int64) op.Form, products bool) (list []op.Form) {
	for i, f := range []QuantizedForm{Q40, Q41, Q4K, Q80, Q51, Q6K, MXFP4, FP8} {
		f.activations = ActivationsInt16
		if f.Code == CodeE4M3 {
			f.activations = ActivationsFP8
		}
		list = append(list, form(f, 5, op.WideInner))
		if products {
			f.activations = ActivationsFloat
			list = append(list, form(f, 21, op.WideHidden))
		}
		if i == 0 {
			list = append(list, form(f, op.WideVocabulary, CodeBlock))
		}
	}
	return list
}

// weights returns the shapes of the weights of an op with the attributes.
func (f QuantizedForm) weights(attrs []*onnx.Attribute) [][]int64 {
	return Weights(nil, op.Site{Attributes: attrs}, EmbeddingCodes).Dims(f.Minus, f.Twofold)
}
