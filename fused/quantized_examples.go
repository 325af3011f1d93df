package fused

import "slices"

// quantizedForm is a way to store weights, and a use of them.
type quantizedForm struct {
	code           string
	zero, block    int64
	n, k           int64
	minus, twofold bool
	activations    string
	rows           []int64 // leading dimensions of X
	bias           bool
}

// quantizedForms covers the formats of GGUF, MXFP4 and DeepSeek-V3, each with its kinds of activations, with few rows
// and with so many that kernels unpack the weights first.
var quantizedForms = []quantizedForm{
	{codeInt4, 8, 32, 37, 96, false, false, activationsInt16, []int64{2, 1}, false}, // q4_0
	{codeInt4, 8, 32, 37, 96, false, false, activationsInt8, []int64{3}, true},
	{codeInt4, 8, 32, 5, 96, false, false, activationsFloat, []int64{2, 2}, true},
	{codeInt4, 0, 32, 37, 96, true, false, activationsInt16, []int64{20}, true}, // q4_1
	{codeInt4, 0, 32, 37, 256, true, false, activationsInt8, []int64{1, 19}, false},
	{codeInt4, 0, 32, 37, 96, true, false, activationsFloat, []int64{1}, false},
	{codeInt4, 0, 16, 37, 256, true, true, activationsInt16, []int64{7}, false},   // q2_K
	{codeInt4, 0, 32, 37, 512, true, true, activationsInt16, []int64{1, 3}, true}, // q4_K
	{codeInt4, 0, 32, 37, 256, true, true, activationsInt8, []int64{33}, false},
	{codeInt4, 0, 32, 5, 256, true, true, activationsFloat, []int64{2}, false},
	{codeInt8, 128, 32, 37, 96, false, false, activationsInt16, []int64{1}, false}, // q8_0, q5_0
	{codeInt8, 128, 32, 37, 96, false, false, activationsInt8, []int64{2, 17}, true},
	{codeInt8, 128, 32, 37, 96, false, false, activationsInt8, []int64{5}, true},
	{codeInt8, 128, 32, 5, 96, false, false, activationsFloat, []int64{3}, false},
	{codeInt8, 128, 32, 5, 96, false, false, activationsInt16, []int64{0, 2}, false},
	{codeInt8, 112, 32, 37, 96, true, false, activationsInt16, []int64{18}, false}, // q5_1
	{codeInt8, 112, 32, 37, 256, true, true, activationsInt16, []int64{4}, true},   // q5_K
	{codeInt8, 112, 32, 37, 256, true, true, activationsInt8, []int64{16}, false},
	{codeInt8, 128, 16, 37, 256, false, true, activationsInt16, []int64{2}, false}, // q6_K
	{codeInt8, 128, 16, 37, 256, false, true, activationsInt8, []int64{21}, true},
	{codeInt8, 128, 16, 5, 256, false, true, activationsFloat, []int64{1}, true},
	{codeE2M1, 0, 32, 37, 96, false, false, activationsInt16, []int64{3}, true}, // MXFP4
	{codeE2M1, 0, 32, 37, 96, false, false, activationsInt8, []int64{22}, false},
	{codeE2M1, 0, 32, 5, 96, false, false, activationsFloat, []int64{1}, false},
	{codeE4M3, 0, 128, 37, 256, false, false, activationsFloat, []int64{3}, true}, // DeepSeek-V3
	{codeE4M3, 0, 128, 37, 512, false, false, activationsFloat, []int64{2, 9}, false},
	{codeE4M3, 0, 128, 5, 256, false, false, activationsFP8, []int64{1}, false},
	{codeE4M3, 0, 128, 37, 256, false, false, activationsFP8, []int64{19}, true},
}

// of reports whether the weights have the attributes of a site.
func (f quantizedForm) of(s Site) bool {
	attrs := Read[Linear](s.Attributes)
	return f.code == attrs.Code && f.zero == attrs.Zero && f.block == attrs.Block &&
		f.n == attrs.N && f.k == attrs.K
}

func linearExamples(s Site) [][][]int64 {
	var list [][][]int64
	for _, f := range quantizedForms {
		if f.of(s) && f.activations == Read[Linear](s.Attributes).Activations {
			weights := linearWeights(nil, s).dims(f.minus, f.twofold)
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
func embeddingExamples(s Site) [][][]int64 {
	var list [][][]int64
	for _, f := range quantizedForms {
		if f.of(s) && (f.activations == activationsInt16 || f.code == codeE4M3) {
			weights := quantizedWeights(nil, s, EmbeddingCodes).dims(f.minus, f.twofold)
			list = append(list, append([][]int64{f.rows}, weights...))
		}
	}
	return list
}
