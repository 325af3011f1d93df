package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The inputs of Attention.
const (
	AttentionQ = iota
	AttentionK
	AttentionV
	AttentionKeyValid
	AttentionPastKey
	AttentionPastValue
	AttentionPastLength
	AttentionBias
	AttentionSink
)

// The values of Attention's string attributes.
const (
	layoutBNSH  = "bnsh"
	layoutBSNH  = "bsnh"
	emptyZero   = "zero"
	emptyMean   = "mean"
	headBlocked = "blocked"
	headCyclic  = "cyclic"
)

var attentionInputs = []Param{
	{Name: "q", Type: "T", Doc: "[B, H, S, D] or, with q_layout=bsnh, [B, S, H, D]"},
	{Name: "k", Type: "T", Doc: "[B, Hk, N, D] or, with k_layout=bsnh, [B, N, Hk, D]; Hk divides H"},
	{Name: "v", Type: "T", Doc: "[B, Hk, N, Dv] or, with v_layout=bsnh, [B, N, Hk, Dv]"},
	{Name: "key_valid", Type: "int64", Optional: true,
		Doc: "[B, at least L]: 0 for a key that no query sees, such as padding; with past_length L is the longest"},
	{Name: "past_key", Type: "T", Optional: true, Doc: "[B, Hk, P, D], or [B, Hk, M, D] with past_length"},
	{Name: "past_value", Type: "T", Optional: true, Doc: "as past_key, Dv wide; there if past_key is"},
	{Name: "past_length", Type: "int64", Optional: true,
		Doc: "[1] or [B]: keys that are in past_key, at most M - N; the others are overwritten by k, or not read"},
	{Name: "bias", Type: "float32", Optional: true, Doc: "broadcast to [B, H, S, L]"},
	{Name: "sink", Type: "float32", Optional: true, Doc: "[H]"},
}

var attentionAttributes = []AttributeSpec{
	{Name: "scale", Type: onnx.AttrFloat, Bounds: finite, Grid: []any{0.25}, Doc: "factor of the scores"},
	{Name: "causal", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
		Doc: "1: no query sees a later key; the last query stands with the last key"},
	{Name: "window", Type: onnx.AttrInt, Bounds: atLeast(0), Grid: []any{0, 3},
		Doc: "how many keys back a query sees, its own counted; 0: all"},
	{Name: "softcap", Type: onnx.AttrFloat, Bounds: notNegative, Grid: []any{0.0, 0.75},
		Doc: "bound of the scores; 0: none"},
	{Name: "empty", Type: onnx.AttrString, Values: []string{emptyZero, emptyMean}, Field: "empty_mean",
		Doc: "what a query gets that sees no key: 0, or the mean of V over all L keys"},
	{Name: "head_order", Type: onnx.AttrString, Values: []string{headBlocked, headCyclic}, Field: "cyclic",
		Doc: "which queries share a head of keys: those of G heads in a row, or those of every Hk-th head"},
	{Name: "q_layout", Type: onnx.AttrString, Values: headLayouts, Field: "q_by_token",
		Doc: "order of q's dimensions"},
	{Name: "k_layout", Type: onnx.AttrString, Values: headLayouts, Field: "k_by_token",
		Doc: "order of k's dimensions"},
	{Name: "v_layout", Type: onnx.AttrString, Values: headLayouts, Field: "v_by_token",
		Doc: "order of v's dimensions"},
	{Name: "y_layout", Type: onnx.AttrString, Values: headLayouts, Field: "y_by_token",
		Doc: "order of Y's dimensions"},
}

var attentionFamily = &Family{Name: "attention", Summary: "attention with its masks and its cache"}

// attention is scaled dot-product attention with all that stands around it in a decoder: heads that share keys, masks
// that follow from positions, and the cache.
var attention = &Op{
	Name:    AttentionName,
	Summary: "Scaled dot-product attention with shared key heads, masks by position, sinks and a cache.",
	Formula: []string{
		"K = k, of N keys, by heads; past_key is given: past_key's P keys, then k's; L = P + N, S queries, G = H / Hk",
		"V likewise of v and past_value",
		"past_length is given: K[b] = past_key[b], of M keys, with k[b] in the place of those from past_length[b] on",
		"                      and L = past_length[b] + N",
		"s[h,i,j] = scale * (q[h,i] . K[g,j]);  g = head_order=blocked: floor(h / G), cyclic: h mod Hk",
		"softcap > 0: s = softcap * tanh(s / softcap);  bias is given: s = s + bias[b,h,i,j]",
		"query i sees key j < L if (causal=0 or j <= i + L - S) and (window=0 or j > i + L - S - window)",
		"                      and (key_valid is not given or key_valid[b,j] != 0)",
		"m[i] = the greatest of s[h,i,j] of the keys seen, and of sink[h]",
		"e[i,j] = j is seen ? exp(s[h,i,j] - m[i]) : 0",
		"p[i,j] = e[i,j] / (sum of e[i,:] + exp(sink[h] - m[i]));  without a sink the last term is 0",
		"m[i] = -infinity: no key is seen: p[i,:] = empty=zero: 0, mean: 1 / L for every key",
		"Y[h,i] = round_T(sum over j of p[i,j] * V[g,j]);  present_key = K, present_value = V",
	},
	Family:  attentionFamily,
	Devices: Devices(),
	Inputs:  attentionInputs,
	Outputs: []Param{
		{Name: "Y", Type: "T", Doc: "[B, H, S, Dv] or, with y_layout=bsnh, [B, S, H, Dv]"},
		{Name: "present_key", Type: "T", Optional: true,
			Doc: "[B, Hk, L, D], or the shape of past_key with past_length"},
		{Name: "present_value", Type: "T", Optional: true, Doc: "as present_key, Dv wide"},
	},
	Attributes: attentionAttributes,
	Types:      independent("T"),
	Source: "Vaswani et al., Attention Is All You Need (2017); heads that share keys: Ainslie et al., GQA (2023); " +
		"softcap is Gemma 2's, sinks are gpt-oss's, windows Mistral's",
	check:    attentionSupports,
	shapes:   attentionShapes,
	examples: attentionExamples,
	overload: attentionOverload,
	define:   attentionBody,
}

// headLayouts are the orders of batch, heads, sequence and the channels of a head.
var headLayouts = []string{layoutBNSH, layoutBSNH}

// attentionOverload names what the body depends on: the attributes that are not numbers, whether numbers are 0, and
// which inputs there are.
func attentionOverload(s Site) string {
	attrs := Read[Attention](s.Attributes)
	name := "full"
	if attrs.Causal {
		name = "causal"
	}
	if attrs.Window > 0 {
		name += "_window"
	}
	if attrs.Softcap > 0 {
		name += "_softcap"
	}
	if attrs.Empty == emptyMean {
		name += "_" + emptyMean
	}
	if attrs.HeadOrder == headCyclic {
		name += "_" + headCyclic
	}
	for i := AttentionKeyValid; i <= AttentionSink; i++ {
		if s.has(i) && i != AttentionPastValue {
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

// headDims are the dimensions of a tensor of heads, -1 where unknown.
type headDims struct{ batch, heads, length, width int64 }

// heads returns the dimensions of input i, whose layout an attribute may tell.
func (s Site) heads(i int, layout string) headDims {
	d := s.dims(i)
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

func attentionShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	q, k, v := s.heads(AttentionQ, "q_layout"), s.heads(AttentionK, "k_layout"), s.heads(AttentionV, "v_layout")
	pastKey, pastValue := s.heads(AttentionPastKey, ""), s.heads(AttentionPastValue, "")
	batch := equal(equal(q.batch, k.batch), equal(v.batch, equal(pastKey.batch, pastValue.batch)))
	heads := equal(equal(k.heads, v.heads), equal(pastKey.heads, pastValue.heads))
	width := equal(q.width, equal(k.width, pastKey.width))
	valueWidth := equal(v.width, pastValue.width)
	length := equal(k.length, v.length)
	switch past := equal(pastKey.length, pastValue.length); {
	case s.has(AttentionPastLength):
		length = past
	case !s.has(AttentionPastKey):
	case past < 0 || length < 0:
		length = -1
	default:
		length += past
	}
	return [][]int64{
		headDims{batch, q.heads, q.length, valueWidth}.in(Read[Attention](s.Attributes).YLayout),
		{batch, heads, length, width},
		{batch, heads, length, valueWidth},
	}
}

func attentionSupports(s Site) error {
	if s.has(AttentionPastKey) != s.has(AttentionPastValue) {
		return fmt.Errorf("mojo.Attention takes past_key and past_value, or neither")
	}
	if s.has(AttentionPastLength) && !s.has(AttentionPastKey) {
		return fmt.Errorf("mojo.Attention takes past_length with past_key alone")
	}
	return attentionDims(s)
}

// attentionDims checks what is known of the shapes against each other.
func attentionDims(s Site) error {
	layouts := map[int]string{AttentionQ: "q_layout", AttentionK: "k_layout", AttentionV: "v_layout",
		AttentionPastKey: "", AttentionPastValue: ""}
	for _, i := range []int{AttentionQ, AttentionK, AttentionV, AttentionPastKey, AttentionPastValue} {
		if d := s.dims(i); d != nil && len(d) != 4 {
			return fmt.Errorf("mojo.Attention takes %s of rank 4, not of shape %v", attentionInputs[i].Name, d)
		}
	}
	// same errs where two inputs differ in a dimension that they must share.
	same := func(what string, dim func(headDims) int64, inputs ...int) error {
		known, from := int64(-1), 0
		for _, i := range inputs {
			d := dim(s.heads(i, layouts[i]))
			if d >= 0 && known >= 0 && d != known {
				return fmt.Errorf("mojo.Attention takes %s and %s with the same %s: %s is %v, %s is %v",
					attentionInputs[from].Name, attentionInputs[i].Name, what, attentionInputs[from].Name,
					s.dims(from), attentionInputs[i].Name, s.dims(i))
			}
			if d >= 0 {
				known, from = d, i
			}
		}
		return nil
	}
	const q, k, v, pastKey, pastValue = AttentionQ, AttentionK, AttentionV, AttentionPastKey, AttentionPastValue
	for _, err := range []error{
		same("batch", func(d headDims) int64 { return d.batch }, q, k, v, pastKey, pastValue),
		same("heads", func(d headDims) int64 { return d.heads }, k, v, pastKey, pastValue),
		same("number of keys", func(d headDims) int64 { return d.length }, k, v),
		same("number of keys", func(d headDims) int64 { return d.length }, pastKey, pastValue),
		same("width", func(d headDims) int64 { return d.width }, q, k, pastKey),
		same("width", func(d headDims) int64 { return d.width }, v, pastValue),
	} {
		if err != nil {
			return err
		}
	}
	h, hk := s.heads(q, "q_layout").heads, s.heads(k, "k_layout").heads
	if h >= 0 && (hk == 0 || hk > 0 && h%hk != 0) {
		return fmt.Errorf("mojo.Attention takes heads of k that divide those of q: there are %d and %d", hk, h)
	}
	if d := s.dims(AttentionSink); d != nil && !agree(d, []int64{h}) && h >= 0 {
		return fmt.Errorf("mojo.Attention takes a sink of shape [%d], not %v", h, d)
	}
	b := s.heads(q, "q_layout").batch
	if d := s.dims(AttentionPastLength); d != nil && b >= 0 && !agree(d, []int64{b}) && !agree(d, []int64{1}) {
		return fmt.Errorf("mojo.Attention takes a past_length of shape [1] or [%d], not %v", b, d)
	}
	if d := s.dims(AttentionKeyValid); d != nil && (len(d) != 2 || d[0] >= 0 && b >= 0 && d[0] != b) {
		return fmt.Errorf("mojo.Attention takes key_valid of shape [B, L]: q is %v, key_valid is %v", s.dims(q), d)
	}
	return attentionBias(s, b, h)
}

// attentionBias checks that a bias broadcasts to the scores of as many batches and heads.
func attentionBias(s Site, batch, heads int64) error {
	bias := s.dims(AttentionBias)
	scores := []int64{batch, heads, s.heads(AttentionQ, "q_layout").length, -1}
	ok := len(bias) <= len(scores)
	for i := 1; ok && i <= len(bias); i++ {
		a, b := bias[len(bias)-i], scores[len(scores)-i]
		ok = a < 0 || b < 0 || a == 1 || a == b
	}
	if !ok {
		return fmt.Errorf("mojo.Attention takes a bias that broadcasts to [B, H, S, L]: q is %v, bias is %v",
			s.dims(AttentionQ), bias)
	}
	return nil
}
