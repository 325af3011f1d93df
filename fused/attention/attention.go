// Package attention has softmax attention, with a cache, with latents, and in pages.
package attention

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op, latentAttention, pagedAttention, quantizedPagedAttention}

// The values of Attention's string attributes.
const (
	layoutBNSH  = "bnsh"
	layoutBSNH  = "bsnh"
	emptyZero   = "zero"
	emptyMean   = "mean"
	headBlocked = "blocked"
	headCyclic  = "cyclic"
)

var attentionInputs = []op.Param{
	{Name: "q", Type: "T", Dims: "q_layout: B H S D | B S H D"},
	{Name: "k", Type: "T", Dims: "k_layout: B Hk N D | B N Hk D"},
	{Name: "v", Type: "T", Dims: "v_layout: B Hk N Dv | B N Hk Dv"},
	{Name: "key_valid", Type: "int64", Optional: true, Dims: "B >=L",
		Doc: "0 for a key that no query sees, such as padding; with past_length L is the longest"},
	{Name: "past_key", Type: "T", Optional: true, Dims: "B Hk P D",
		Doc: "P is M with past_length"},
	{Name: "past_value", Type: "T", Optional: true, Dims: "B Hk P Dv"},
	{Name: "past_length", Type: "int64", Optional: true, Dims: "1 | B",
		Doc: "number of keys in past_key, at most M - N; later rows are overwritten by k or not read"},
	{Name: "bias", Type: "float32", Optional: true, Dims: "~B ~H ~S ~L", Doc: "added to the scores"},
	{Name: "sink", Type: "float32", Optional: true, Dims: "H", Doc: "for each head a score without a value"},
}

var attentionAttributes = []op.AttributeSpec{
	{Name: "scale", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{0.25}, Doc: "factor of the scores"},
	{Name: "causal", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
		Doc: "1: no query sees a later key; the last query is aligned with the last key"},
	{Name: "window", Type: onnx.AttrInt, Bounds: op.AtLeast(0), Grid: []any{0, 3},
		Doc: "number of keys that a query sees, up to and including its own; 0: all"},
	{Name: "softcap", Type: onnx.AttrFloat, Bounds: op.NotNegative, Grid: []any{0.0, 0.75},
		Doc: "bound of the scores; 0: no bound"},
	{Name: "empty", Type: onnx.AttrString, Values: []string{emptyZero, emptyMean}, Field: "empty_mean",
		Doc: "result of a query that sees no key: 0, or the mean of V over all L keys"},
	{Name: "head_order", Type: onnx.AttrString, Values: []string{headBlocked, headCyclic}, Field: "cyclic",
		Doc: "which heads of queries share a head of keys: G consecutive heads, or every Hk-th head"},
	{Name: "q_layout", Type: onnx.AttrString, Values: headLayouts, Field: "q_by_token",
		Doc: "order of q's dimensions"},
	{Name: "k_layout", Type: onnx.AttrString, Values: headLayouts, Field: "k_by_token",
		Doc: "order of k's dimensions"},
	{Name: "v_layout", Type: onnx.AttrString, Values: headLayouts, Field: "v_by_token",
		Doc: "order of v's dimensions"},
	{Name: "y_layout", Type: onnx.AttrString, Values: headLayouts, Field: "y_by_token",
		Doc: "order of Y's dimensions"},
}

// cacheLet defines T, the tokens that the cache holds, and L, the tokens attended to. If past_length is given, L
// depends on its values.
var cacheLet = map[string]op.Shape{"T": "past_length?: P+N | P", "L": "past_length?: P+N | ?"}

var attentionFamily = &op.Family{Name: "attention", Summary: "attention with masks and a KV cache"}

// Op is scaled dot-product attention as decoders use it: with heads that share keys, masks by position, and the
// KV cache.
var Op = &op.Op{
	Name:    AttentionName,
	Summary: "Scaled dot-product attention with shared key heads, masks by position, sinks and a cache.",
	Formula: []string{
		"K = the N keys of k by heads; if past_key is given: its P keys, then k's; L = P + N, S queries, G = H / Hk",
		"V likewise from v and past_value",
		"if past_length is given: K[b] = past_key[b], of M keys, with the N from past_length[b] on replaced by k[b];",
		"                      L = past_length[b] + N",
		"s[h,i,j] = scale * (q[h,i] . K[g,j]);  g = head_order=blocked: floor(h / G), cyclic: h mod Hk",
		"if softcap > 0: s = softcap * tanh(s / softcap);  if bias is given: s = s + bias[b,h,i,j]",
		"query i sees key j < L if (causal=0 or j <= i + L - S) and (window=0 or j > i + L - S - window)",
		"                      and (key_valid is not given or key_valid[b,j] != 0)",
		"m[i] = the maximum of s[h,i,j] over the keys j that i sees, and of sink[h]",
		"e[i,j] = i sees j ? exp(s[h,i,j] - m[i]) : 0",
		"p[i,j] = e[i,j] / (sum of e[i,:] + exp(sink[h] - m[i]));  without a sink the last term is 0",
		"if m[i] = -infinity, i sees no key: p[i,:] = empty=zero: 0, mean: 1 / L for every key",
		"Y[h,i] = round_T(sum over j of p[i,j] * V[g,j]);  present_key = K, present_value = V",
	},
	Family:  attentionFamily,
	Devices: op.Devices(),
	Inputs:  attentionInputs,
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "y_layout: B H S Dv | B S H Dv"},
		{Name: "present_key", Type: "T", Optional: true, Dims: "B Hk T D"},
		{Name: "present_value", Type: "T", Optional: true, Dims: "B Hk T Dv"},
	},
	Attributes: attentionAttributes,
	Types:      op.Independent("T"),
	Source: "Vaswani et al., Attention Is All You Need (2017); heads that share keys: Ainslie et al., GQA (2023); " +
		"softcap is Gemma 2's, sinks are gpt-oss's, windows Mistral's",
	Let: cacheLet,
	Where: []op.Relation{
		{Text: "past_key iff past_value", Doc: "past_key and past_value, or neither"},
		{Text: "past_length needs past_key", Doc: "past_length only with past_key"},
		{Text: "N <= P if past_length", Doc: "no more keys of k than past_key has room for"},
		{Text: "Hk divides H", Doc: "a number of heads of k that divides the heads of q"},
	},
	Shapes:  attentionExamples,
	Variant: attentionOverload,
	Wide: func(form op.FormMaker) []op.Form {
		heads := func(heads, keyHeads, queries, keys, width int64) [][]int64 {
			return [][]int64{{1, heads, queries, width}, {1, keyHeads, keys, width}, {1, keyHeads, keys, width}}
		}
		return []op.Form{form(heads(op.WideHeads, 8, 2, 40, 128)), form(heads(2, 2, 3, op.WideImage, 64)),
			form(heads(2, 2, 3, op.WideSound, 64))}
	},
	Body: attentionBody,
}

// headLayouts are the orders of batch, heads, sequence and the channels of a head.
var headLayouts = []string{layoutBNSH, layoutBSNH}

// scoresName names the keys that a query sees, and whether scores are capped.
func scoresName(causal bool, window int64, softcap float32) string {
	name := "full"
	if causal {
		name = "causal"
	}
	if window > 0 {
		name += "_window"
	}
	if softcap > 0 {
		name += "_softcap"
	}
	return name
}

// attentionOverload names the body's variant: the string attributes, whether numbers are 0, and which inputs are given.
func attentionOverload(s op.Site) string {
	attrs := op.Read[Attention](s.Attributes)
	name := scoresName(attrs.Causal, attrs.Window, attrs.Softcap)
	if attrs.Empty == emptyMean {
		name += "_" + emptyMean
	}
	if attrs.HeadOrder == headCyclic {
		name += "_" + headCyclic
	}
	for i := AttentionKeyValid; i <= AttentionSink; i++ {
		if s.Has(i) && i != AttentionPastValue {
			name += "_" + attentionInputs[i].Name
		}
	}
	for _, tensor := range []string{"q", "k", "v", "y"} {
		if s.Attr(tensor+"_layout").String == layoutBSNH {
			name += "_" + tensor + "_" + layoutBSNH
		}
	}
	return name
}

// headDims are the dimensions of a tensor of heads, -1 if unknown.
type headDims struct{ batch, heads, length, width int64 }

// headsOf returns the dimensions of input i. layout names the attribute with its layout; "" means bnsh.
func headsOf(s op.Site, i int, layout string) headDims {
	d := s.Shape(i)
	if len(d) != 4 {
		return headDims{-1, -1, -1, -1}
	}
	if layout != "" && s.Attr(layout).String == layoutBSNH {
		return headDims{d[0], d[2], d[1], d[3]}
	}
	return headDims{d[0], d[1], d[2], d[3]}
}

// in returns the dimensions in the order of a layout.
func (d headDims) in(layout string) []int64 {
	if layout == layoutBSNH {
		return []int64{d.batch, d.length, d.heads, d.width}
	}
	return []int64{d.batch, d.heads, d.length, d.width}
}
