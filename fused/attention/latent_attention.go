package attention

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var latentInputs = []op.Param{
	{Name: "q", Type: "T", Dims: "q_layout: B H S F | B S H F",
		Doc: "F = E + R: the R rotated channels are last"},
	{Name: "c", Type: "T", Dims: "B N C"},
	{Name: "k_pe", Type: "T", Dims: "B 1 N R"},
	{Name: "w", Type: "T", Dims: "w_layout: C O | O C",
		Doc: "O = H * (E + Dv): for each head the E channels of keys, then the Dv channels of values"},
	{Name: "key_valid", Type: "int64", Optional: true, Dims: "B >=L",
		Doc: "0 for a key that no query sees, such as padding; with past_length L is the longest"},
	{Name: "past", Type: "T", Optional: true, Dims: "B 1 P C+R",
		Doc: "P is M with past_length"},
	{Name: "past_length", Type: "int64", Optional: true, Dims: "1 | B",
		Doc: "number of tokens in past, at most M - N; later rows are overwritten or not read"},
}

// latentAttention is attention whose keys and values are linear maps of one narrow vector for each token, the latent.
// The cache keeps latents. A kernel may multiply by w before or after attention: both compute the same function.
var latentAttention = &op.Op{
	Name:    LatentAttentionName,
	Summary: "Attention whose keys and values are linear maps of a latent for each token; the cache keeps latents.",
	Formula: []string{
		"latent = [c, k_pe] of each of the N new tokens; if past is given: its P latents, then these; L = P + N",
		"if past_length is given: latent[b] = past[b], of M latents, with the N from past_length[b] on replaced by the",
		"                      new ones; L = past_length[b] + N",
		"for a token j: c, k_pe = latent[j];  [k_nope[h], v[h]] = c . w[h];  k[h] = [k_nope[h], k_pe]",
		"Y = Attention(q, k, v, key_valid; scale, causal, empty, window=0, softcap=0);  present = latent",
	},
	Family:  attentionFamily,
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs:  latentInputs,
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "y_layout: B H S O/H-(F-R) | B S H O/H-(F-R)",
			Doc: "Dv = O/H - E channels"},
		{Name: "present", Type: "T", Optional: true, Dims: "B 1 T C+R"},
	},
	Attributes: append(op.Within("attention", "Attention", []op.AttributeSpec{
		{Name: "scale", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{0.03125}, Doc: "factor of the scores"},
		attentionAttributes[1],
		{Name: "empty", Type: onnx.AttrString, Values: []string{emptyZero, emptyMean}, Field: "empty_mean",
			Doc: "result of a query that sees no key: 0, or the mean of the values over all L keys"},
		attentionAttributes[6], attentionAttributes[9],
	}), op.AttributeSpec{Name: "w_layout", Type: onnx.AttrString, Values: []string{op.LayoutInOut, op.LayoutOutIn},
		Field: "w_out_in", Doc: "how w is stored"}),
	Types: op.Independent("T"),
	Source: "DeepSeek-V2 (2024), multi-head latent attention; w is kv_b_proj. The formula is its naive form; the " +
		"absorbed form attends with q . w to latents and multiplies the result by w",
	Let: cacheLet,
	Where: []op.Relation{
		{Text: "past_length needs past", Doc: "past_length only with past"},
		{Text: "N <= P if past_length", Doc: "no more tokens of c than past has room for"},
		{Text: "1 <= H", Doc: "at least one head of q"},
		{Text: "H divides O", Doc: "a number of heads that divides the outputs of w"},
		{Text: "R <= F", Doc: "heads of q at least as wide as k_pe"},
		{Text: "F-R <= O/H", Doc: "a w whose heads are at least as wide as heads of q without k_pe"},
	},
	Shapes:  latentExamples,
	Variant: latentOverload,
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{1, op.WideHeads, 2, 32 + 64}, {1, 2, 512}, {1, 1, 2, 64},
			{512, op.WideHeads * (32 + 32)}, nil, {1, 1, 20, 512 + 64}}, onnx.IntAttr("causal", 1))}
	},
	Body: latentBody,
}

func latentOverload(s op.Site) string {
	attrs := op.Read[LatentAttention](s.Attributes)
	name := "full"
	if attrs.Causal {
		name = "causal"
	}
	if attrs.Empty == emptyMean {
		name += "_" + emptyMean
	}
	for i := LatentAttentionKeyValid; i <= LatentAttentionPastLength; i++ {
		if s.Has(i) {
			name += "_" + latentInputs[i].Name
		}
	}
	for _, tensor := range []string{"q", "y"} {
		if s.Attr(tensor+"_layout").String == layoutBSNH {
			name += "_" + tensor + "_" + layoutBSNH
		}
	}
	return name + "_" + attrs.WLayout
}

// latentBody builds the naive form: it expands the keys and values of all tokens and attends to them.
func latentBody(b *op.Body, s op.Site) []*onnx.Value {
	attrs := op.Read[LatentAttention](s.Attributes)
	attends := op.Site{Opset: s.Opset, Types: make([]onnx.DataType, AttentionSink+1), Attributes: Attention{
		Scale: attrs.Scale, Causal: attrs.Causal, Empty: attrs.Empty, HeadOrder: headBlocked, QLayout: attrs.QLayout,
		KLayout: layoutBNSH, VLayout: layoutBNSH, YLayout: attrs.YLayout}.Attributes()}
	inner := &op.Body{Root: b.Root, Graph: b.Graph, Site: attends, In: make([]*onnx.Value, AttentionSink+1)}
	give := func(to int, v *onnx.Value, t onnx.DataType) { inner.In[to], attends.Types[to] = v, t }
	a := &attentionBuilder{Body: inner}
	l := &latentBuilder{attentionBuilder: a, w: b.Float32("w_32", b.In[LatentAttentionW])}
	if attrs.WLayout == op.LayoutOutIn {
		l.w = b.Op("w_transposed", "Transpose", []*onnx.Value{l.w}, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	headAxis := int64(1)
	if attrs.QLayout == layoutBSNH {
		headAxis = 2
	}
	l.heads = a.Size("q_heads", b.In[LatentAttentionQ], headAxis)
	l.latent = a.Size("latent_width", b.In[LatentAttentionC], 2)
	l.nope = b.Call("nope_width", "Sub", a.Size("q_width", b.In[LatentAttentionQ], 3), a.Size("pe_width",
		b.In[LatentAttentionKPE], 3))
	added := a.Joined("added", -1, b.Call("c_heads", "Unsqueeze", b.In[LatentAttentionC], b.Integers("head", 1)),
		b.In[LatentAttentionKPE])
	give(AttentionQ, b.In[LatentAttentionQ], s.Types[LatentAttentionQ])
	present := added
	k, v := l.expand("new", added)
	give(AttentionK, k, op.F32)
	give(AttentionV, v, op.F32)
	if s.Has(LatentAttentionPast) {
		k, v = l.expand("past", b.In[LatentAttentionPast])
		give(AttentionPastKey, k, op.F32)
		give(AttentionPastValue, v, op.F32)
		if s.Has(LatentAttentionPastLength) {
			give(AttentionPastLength, b.In[LatentAttentionPastLength], onnx.Int64)
			a.length = b.Call("new_length", "Add", b.In[LatentAttentionPastLength], a.Size("new_tokens", added, 2))
			present = a.overwritten("present", b.In[LatentAttentionPast], added, a.rows())
		} else {
			present = a.Joined("present", 2, b.In[LatentAttentionPast], added)
		}
	}
	if s.Has(LatentAttentionKeyValid) {
		give(AttentionKeyValid, b.In[LatentAttentionKeyValid], onnx.Int64)
	}
	return []*onnx.Value{attentionBody(inner, attends)[0], present}
}

// latentBuilder expands latents to keys and values. Sizes are vectors of one int64.
type latentBuilder struct {
	*attentionBuilder
	w                   *onnx.Value // [C, H * (E + Dv)]
	heads, latent, nope *onnx.Value // H, C and E
}

// expand returns keys [B, H, n, E + R] and values [B, H, n, Dv] of latents [B, 1, n, C + R].
func (l *latentBuilder) expand(name string, latents *onnx.Value) (keys, values *onnx.Value) {
	wide := l.Float32(name+"_latents", latents)
	c := l.Call(name+"_c", "Squeeze", l.Slice(name+"_c_heads", wide, nil, l.latent, 1), l.Integers("one_head", 1))
	width := l.Call(name+"_width", "Div", l.Size("w_outputs", l.w, 1), l.heads)
	rows := l.Call(name+"_rows", "Reshape", l.Call(name+"_product", "MatMul", c, l.w),
		l.Joined(name+"_by_heads", 0, l.Integers("copied", 0, 0), l.heads, width))
	both := l.swapped(name+"_heads", rows)
	one := l.Integers("one", 1)
	pe := l.Call(name+"_pe", "Expand", l.Slice(name+"_pe_row", wide, l.latent, nil, 1),
		l.Joined(name+"_pe_shape", 0, one, l.heads, one, one))
	return l.Concat(name+"_keys", l.Slice(name+"_nope", both, nil, l.nope, 1), pe),
		l.Slice(name+"_values", both, l.nope, nil, 1)
}

// latentForm is a way to use LatentAttention.
type latentForm struct {
	causal, mean, byOutput            bool
	layouts                           string // of q and y
	batch, heads, queries, added      int64
	nope, rotated, latent, valueWidth int64
	past                              int64 // P, or M if lengths > 0; -1: no cache
	lengths                           int64 // elements of past_length; 0: not given
	valid                             bool
}

// latentForms covers every attribute and every input, decode steps in which multiplying queries by w is cheaper, and
// prompts in which expanding keys and values is cheaper.
var latentForms = []latentForm{
	{batch: 2, heads: 3, queries: 3, added: 5, nope: 6, rotated: 4, latent: 10, valueWidth: 5, past: -1,
		layouts: "bnsh bnsh"},
	{causal: true, batch: 2, heads: 3, queries: 1, added: 1, nope: 8, rotated: 4, latent: 16, valueWidth: 8, past: 20,
		valid: true, layouts: "bnsh bsnh"},
	{causal: true, mean: true, batch: 2, heads: 2, queries: 2, added: 2, nope: 6, rotated: 2, latent: 5, valueWidth: 7,
		past: 150, lengths: 2, valid: true, layouts: "bsnh bnsh"},
	{causal: true, batch: 1, heads: 5, queries: 70, added: 70, nope: 20, rotated: 6, latent: 48, valueWidth: 33,
		past: 140, layouts: "bsnh bsnh", byOutput: true},
	{causal: true, mean: true, batch: 2, heads: 2, queries: 9, added: 9, nope: 8, rotated: 4, latent: 40, valueWidth: 8,
		past: 0, valid: true, layouts: "bnsh bsnh", byOutput: true},
	{causal: true, batch: 1, heads: 20, queries: 1, added: 1, nope: 32, rotated: 16, latent: 64, valueWidth: 32,
		past: 300, lengths: 1, layouts: "bnsh bnsh", byOutput: true},
	{causal: true, batch: 2, heads: 2, queries: 0, added: 0, nope: 4, rotated: 2, latent: 6, valueWidth: 4, past: 4,
		layouts: "bsnh bnsh"},
}

// latentExamples lists the forms that have these attributes.
func latentExamples(s op.Site) [][][]int64 {
	attrs := op.Read[LatentAttention](s.Attributes)
	var list [][][]int64
	for _, f := range latentForms {
		layout := op.LayoutInOut
		if f.byOutput {
			layout = op.LayoutOutIn
		}
		if f.layouts == attrs.QLayout+" "+attrs.YLayout &&
			layout == attrs.WLayout &&
			f.causal == attrs.Causal && f.mean == (attrs.Empty == emptyMean) {
			list = append(list, f.dims(s))
		}
	}
	return list
}

// dims are the shapes of the inputs.
func (f latentForm) dims(s op.Site) [][]int64 {
	dims := make([][]int64, LatentAttentionPastLength+1)
	q := headDims{f.batch, f.heads, f.queries, f.nope + f.rotated}
	dims[LatentAttentionQ] = q.in(op.Read[LatentAttention](s.Attributes).QLayout)
	dims[LatentAttentionC] = []int64{f.batch, f.added, f.latent}
	dims[LatentAttentionKPE] = []int64{f.batch, 1, f.added, f.rotated}
	dims[LatentAttentionW] = []int64{f.latent, f.heads * (f.nope + f.valueWidth)}
	if f.byOutput {
		dims[LatentAttentionW] = []int64{f.heads * (f.nope + f.valueWidth), f.latent}
	}
	length := f.added
	if f.past >= 0 {
		dims[LatentAttentionPast] = []int64{f.batch, 1, f.past, f.latent + f.rotated}
		length += f.past
	}
	if f.lengths > 0 {
		dims[LatentAttentionPastLength] = []int64{f.lengths}
	}
	if f.valid {
		dims[LatentAttentionKeyValid] = []int64{f.batch, length}
	}
	return dims
}
