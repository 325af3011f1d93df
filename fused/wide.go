package fused

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The sizes of real models: the rows of weights of 7B and 70B models, a vocabulary, heads, experts, and the keys of an
// image and of half a minute of sound.
const (
	wideHidden     = 4096
	wideInner      = 14336
	wideVocabulary = 151936
	wideHeads      = 128
	wideExperts    = 512
	wideImage      = 577
	wideSound      = 1500
)

// wideForms returns forms of an op at such sizes. Attributes that a form does not set have the first value of their
// grid. A dimension that is not summed over is small.
func (o *Op) wideForms() []Form {
	attr, name := onnx.IntAttr, onnx.StringAttr
	form := func(dims [][]int64, attrs ...*onnx.Attribute) Form {
		for _, a := range o.Attributes {
			if !slices.ContainsFunc(attrs, func(x *onnx.Attribute) bool { return x.Name == a.Name }) {
				attrs = append(attrs, a.grid()[0])
			}
		}
		return Form{attrs, dims}
	}
	row, rotated := []int64{3, wideInner}, []int64{1, wideHeads, 3, 128}
	var list []Form
	switch o.Name {
	case "RMSNorm":
		list = append(list, form([][]int64{row, row[1:]}))
	case "AddRMSNorm":
		list = append(list, form([][]int64{row, row, row[1:]}))
	case "GatedRMSNorm":
		list = append(list, form([][]int64{row, row, row[1:]}))
	case NormQuantizeName:
		list = append(list, form([][]int64{row, row[1:], {1}, row}))
	case AddLayerNormName:
		list = append(list, form([][]int64{row, row, row[1:], row[1:], row[1:]}))
	case BiasGELUName:
		list = append(list, form([][]int64{row, row[1:]}, name("activation", "gelu")),
			form([][]int64{row, row[1:]}, name("activation", "gelu_tanh")))
	case "GLU":
		list = append(list, form([][]int64{row, row}), form([][]int64{row, row}, name("activation", "gelu")),
			form([][]int64{row, row}, name("activation", "gelu_tanh")))
	case "RotaryEmbedding":
		list = append(list, form([][]int64{rotated, {3, 64}, {3, 64}}, attr("rotary_dim", 128)))
	case "NormRotary":
		list = append(list, form([][]int64{rotated, {128}, {3, 64}, {3, 64}}, attr("rotary_dim", 128)))
	case TopKRouterName:
		list = append(list, form([][]int64{{3, wideExperts}}, attr("top_k", 8)),
			form([][]int64{{3, wideExperts}, {wideExperts}}, attr("top_k", 8), name("score", "sigmoid"),
				attr("groups", 8), attr("group_top_k", 4), name("group_score", "top2_sum"), attr("renormalize", 1)))
	case MoEName:
		expert := func(hidden, inner int64) [][]int64 {
			return [][]int64{{3, hidden}, {3, 2}, {3, 2}, {4, 2 * inner, hidden}, {4, hidden, inner}}
		}
		list = append(list, form(expert(wideHidden, 16)), form(expert(16, wideInner)))
	case AttentionName:
		heads := func(heads, keyHeads, queries, keys, width int64) [][]int64 {
			return [][]int64{{1, heads, queries, width}, {1, keyHeads, keys, width}, {1, keyHeads, keys, width}}
		}
		list = append(list, form(heads(wideHeads, 8, 2, 40, 128)), form(heads(2, 2, 3, wideImage, 64)),
			form(heads(2, 2, 3, wideSound, 64)))
	case LatentAttentionName:
		list = append(list, form([][]int64{{1, wideHeads, 2, 32 + 64}, {1, 2, 512}, {1, 1, 2, 64},
			{512, wideHeads * (32 + 32)}, nil, {1, 1, 20, 512 + 64}}, attr("causal", 1)))
	case PagedAttentionName:
		list = append(list, form([][]int64{{2, wideHeads, 128}, {2, 8, 128}, {2, 8, 128}, {5, 16, 8, 128},
			{5, 16, 8, 128}, {3}, {2}, {2, 2}}, attr("causal", 1)))
	case LinearAttentionName:
		list = append(list, form([][]int64{{1, 2, 2 * 256}, {1, 2, 256}, {1, 2, 2 * 256}, {1, 2, 256, 256}, {1, 2, 2},
			{1, 2, 2}}))
	case CausalConvName:
		list = append(list, form([][]int64{{1, wideInner, 1}, {wideInner, 1, 4}, {wideInner}, {1, wideInner, 3}}))
	case "Linear", "Embedding":
		for i, f := range []quantizedForm{q40, q41, q4K, q80, q51, q6K, mxfp4, fp8} {
			f.activations = activationsInt16
			if f.code == codeE4M3 {
				f.activations = activationsFP8
			}
			list = append(list, o.quantized(f, 5, wideInner, form))
			if o.Name == "Linear" {
				f.activations = activationsFloat
				list = append(list, o.quantized(f, 21, wideHidden, form))
			}
			if i == 0 {
				list = append(list, o.quantized(f, wideVocabulary, codeBlock, form))
			}
		}
	case "HalfLinear":
		list = append(list, form([][]int64{{3, wideInner}, {5, wideInner}}), form([][]int64{{3, 32},
			{wideVocabulary, 32}}), form([][]int64{{3, wideInner}, {wideInner, 5}}, name("layout", layoutInOut)))
	case "QMoE":
		for _, size := range [][2]int64{{wideHidden, 32}, {32, wideInner}} {
			f := qmoeForm{"silu", false, packHalves, q40, q80, size[0], size[1], activationsFloat, []int64{3}, 2, false,
				false}
			list = append(list, f.form())
			f.activations = activationsInt16
			list = append(list, f.form())
		}
	}
	return list
}

// quantized returns a form of Linear or Embedding.
func (o *Op) quantized(f quantizedForm, n, k int64, form func(dims [][]int64, attrs ...*onnx.Attribute) Form) Form {
	table := Embedding{f.code, f.zero, f.block, n, k}
	attrs, first := table.Attributes(), []int64{3}
	if o.Name == "Linear" {
		attrs, first = Linear{table, f.activations}.Attributes(), []int64{3, k}
	}
	weights := quantizedWeights(nil, Site{Attributes: attrs}, EmbeddingCodes).dims(f.minus, f.twofold)
	return form(append([][]int64{first}, weights...), attrs...)
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
	if o.Family.Stored && (first != f32 && first != onnx.Undefined || c.Types["S"] == f16 || c.Types["D"] == f16) {
		return nil
	}
	return o.sites(o.wideForms(), c, opset)
}
