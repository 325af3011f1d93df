package attention

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// pagedAttention is Attention for tokens of several sequences that are packed without padding. Their keys and values
// are in blocks of a pool that all sequences share. Inputs and outputs have the names of com.microsoft.PagedAttention
// if they mean the same.
var pagedAttention = &op.Op{
	Name:    PagedAttentionName,
	Summary: "Attention of packed sequences whose keys and values are in blocks of a shared pool.",
	Formula: []string{
		"cum = cumulative_sequence_length, past = past_seqlens, table = block_table; G = H / Hk",
		"token t of sequence s, cum[s] <= t < cum[s+1], has position n[t] = past[s] + t - cum[s]",
		"place(s,j) = table[s, floor(j / M)] * M + j mod M, a row of the pool [N * M, Hk, D]",
		"slot_mapping is given: slot[t] = slot_mapping[t], otherwise slot[t] = place(s,n[t])",
		"key_cache_out = key_cache with k[t] in row slot[t] for each t with slot[t] >= 0",
		"value_cache_out likewise of value_cache and v",
		"K[j] = row place(s,j) of key_cache_out, V[j] of value_cache_out;  L = past[s] + cum[s+1] - cum[s]",
		"s[h,t,j] = scale * (q[t,h] . K[j,g]);  g = head_order=blocked: floor(h / G), cyclic: h mod Hk",
		"softcap > 0: s = softcap * tanh(s / softcap)",
		"token t sees key j < L if (causal=0 or j <= n[t]) and (window=0 or j > n[t] - window)",
		"m[t] = the greatest of s[h,t,j] of the keys seen, and of sink[h]",
		"e[t,j] = j is seen ? exp(s[h,t,j] - m[t]) : 0",
		"p[t,j] = e[t,j] / (sum of e[t,:] + exp(sink[h] - m[t]));  without a sink the last term is 0",
		"Y[t,h] = round_T(sum over j of p[t,j] * V[j,g]);  without any key seen 0",
	},
	Family: attentionFamily,
	Inputs: append(pagedInputs("T"),
		op.Param{Name: "slot_mapping", Type: "int32", Optional: true, Dims: "S",
			Doc: "the row of the pool that a token is written to, different for all tokens; -1: not written"},
		op.Param{Name: "sink", Type: "float32", Optional: true, Dims: "H",
			Doc: "a score of each head that no value goes with"}),
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "S H Dv"},
		{Name: "key_cache_out", Type: "T", Dims: "N M Hk D"},
		{Name: "value_cache_out", Type: "T", Dims: "N M Hk Dv"},
	},
	Attributes: pagedAttributes,
	Types:      op.Independent("T"),
	Source: "Kwon et al., PagedAttention (2023); attention as in Attention, the pool as in " +
		"com.microsoft.PagedAttention",
	Devices: []op.Device{op.CPU, op.CUDA},
	Where:   []op.Relation{{Text: "Hk divides H", Doc: "heads of k that divide the heads of q"}},
	Shapes:  pagedExamples,
	Variant: func(s op.Site) string {
		return pagedVariant(s) + op.IfGiven(s, PagedAttentionSlotMapping, "_slot_mapping") +
			op.IfGiven(s, PagedAttentionSink, "_sink")
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{2, op.WideHeads, 128}, {2, 8, 128}, {2, 8, 128}, {5, 16, 8, 128},
			{5, 16, 8, 128}, {3}, {2}, {2, 2}}, onnx.IntAttr("causal", 1))}
	},
	Body: pagedBody,
}

// pagedInputs returns the inputs that all ops have, with pools of a type.
func pagedInputs(pool string) []op.Param {
	return []op.Param{
		{Name: "q", Type: "T", Dims: "S H D", Doc: "the tokens of all sequences, in order"},
		{Name: "k", Type: "T", Dims: "S Hk D"},
		{Name: "v", Type: "T", Dims: "S Hk Dv"},
		{Name: "key_cache", Type: pool, Dims: "N M Hk D", Doc: "a pool of N blocks of M tokens"},
		{Name: "value_cache", Type: pool, Dims: "N M Hk Dv"},
		{Name: "cumulative_sequence_length", Type: "int32", Dims: "B+1",
			Doc: "index in q of the first token of each sequence, then S; not descending"},
		{Name: "past_seqlens", Type: "int32", Dims: "B", Doc: "tokens of each sequence that the pool has already"},
		{Name: "block_table", Type: "int32", Dims: "B C",
			Doc: "the blocks of each sequence, in order, 0 to N-1; -1 is allowed after the block of its last token, " +
				"any before the window of the first new one"},
	}
}

var pagedAttributes = []op.AttributeSpec{attentionAttributes[0],
	{Name: "causal", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1}, Doc: "1: no token sees a later key"},
	attentionAttributes[2], attentionAttributes[3], attentionAttributes[5]}

// pagedVariant names the variant of the body by the attributes.
func pagedVariant(s op.Site) string {
	attrs := op.Read[PagedAttention](s.Attributes)
	name := scoresName(attrs.Causal, attrs.Window, attrs.Softcap)
	if attrs.HeadOrder == headCyclic {
		name += "_" + headCyclic
	}
	return name
}

// pagedBody pads the queries to [B, most tokens, H, D], takes each sequence's keys and values out of the pool, and
// attends by the definition of Attention with a bias that is minus infinity for keys that are not seen.
func pagedBody(b *op.Body, s op.Site) []*onnx.Value {
	p := newPagedBuilder(b)
	slots := p.slots(s)
	keys := p.written("key_cache_out", PagedAttentionKeyCache, PagedAttentionK, slots, s)
	values := p.written("value_cache_out", PagedAttentionValueCache, PagedAttentionV, slots, s)
	return []*onnx.Value{p.attended(s, keys, values), keys, values}
}

// attended returns the result of attention to the keys and values in pools.
func (p *pagedBuilder) attended(s op.Site, keys, values *onnx.Value) *onnx.Value {
	b, attrs := p.Body, op.Read[PagedAttention](s.Attributes)
	attends := op.Site{Opset: s.Opset, Types: make([]onnx.DataType, AttentionSink+1), Attributes: Attention{
		Scale: attrs.Scale, Softcap: attrs.Softcap, Empty: emptyZero, HeadOrder: attrs.HeadOrder, QLayout: layoutBSNH,
		KLayout: layoutBSNH, VLayout: layoutBSNH, YLayout: layoutBSNH}.Attributes()}
	inner := &op.Body{Root: b.Root, Graph: b.Graph, Site: attends, In: make([]*onnx.Value, AttentionSink+1)}
	give := func(to int, v *onnx.Value, t onnx.DataType) { inner.In[to], attends.Types[to] = v, t }
	index := b.Call("padded_index", "Min", b.Call("padded_token", "Add", p.column("starts_column", p.starts), p.step),
		b.Call("last_token", "Sub", p.Size("tokens", b.In[PagedAttentionQ], 0), b.Integers("one", 1)))
	give(AttentionQ, p.rowsOf("padded", b.In[PagedAttentionQ], index), s.Types[PagedAttentionQ])
	give(AttentionK, p.ofSequences("sequence_keys", keys, attrs.Window), op.F32)
	give(AttentionV, p.ofSequences("sequence_values", values, attrs.Window), op.F32)
	give(AttentionBias, p.bias(attrs), op.F32)
	if s.Has(PagedAttentionSink) {
		give(AttentionSink, b.In[PagedAttentionSink], op.F32)
	}
	inner.Site = attends
	y := attentionBody(inner, attends)[0]

	flat := b.Call("rows_shape", "Concat", b.Integers("all_rows", -1), p.Size("y_heads", y, 2), p.Size("y_width", y, 3))
	flat.Producer.SetAttr(onnx.IntAttr("axis", 0))
	row := b.Call("row", "Add", b.Call("first_row", "Mul", p.sequence, p.most), b.Call("offset", "Sub", p.token,
		p.rowsOf("own_start", p.starts, p.sequence)))
	return p.rowsOf("Y", b.Call("rows", "Reshape", y, flat), row)
}

// pagedBuilder builds the definition of PagedAttention. All integers are int64.
type pagedBuilder struct {
	*attentionBuilder
	starts, lengths *onnx.Value // [B]: the first token of each sequence, and the number of its keys
	past            *onnx.Value // [B]
	token, sequence *onnx.Value // [S]: 0 to S-1, and the sequence of each token
	most, step      *onnx.Value // the greatest number of tokens of a sequence, [1], and 0 to most-1
	at              *onnx.Value // [S]: the position of each token
	table           *onnx.Value // [B, C]
	block           *onnx.Value // M, [1]
}

func newPagedBuilder(b *op.Body) *pagedBuilder {
	p := &pagedBuilder{attentionBuilder: &attentionBuilder{Body: b}}
	wide := func(name string, i int) *onnx.Value {
		return b.Op(name, "Cast", []*onnx.Value{b.In[i]}, onnx.IntAttr("to", int64(onnx.Int64)))
	}
	cum, front := wide("cumulative", PagedAttentionCumulativeSequenceLength), b.Integers("front", 0)
	p.past, p.table = wide("past", PagedAttentionPastSeqlens), wide("table", PagedAttentionBlockTable)
	p.starts = b.Call("starts", "Slice", cum, front, b.Integers("before_last", -1))
	ends := b.Call("ends", "Slice", cum, b.Integers("second", 1), b.Integers("end", math.MaxInt64))
	counts := b.Call("counts", "Sub", ends, p.starts)
	p.lengths = b.Call("lengths", "Add", p.past, counts)
	p.most = b.Call("most_tokens", "Unsqueeze", p.greatest("most_tokens_number", counts), front)
	p.longest = b.Call("longest", "Unsqueeze", p.greatest("longest_number", p.lengths), front)
	p.step = p.numbers("step", p.most)
	p.token = p.numbers("token", p.Size("token_count", b.In[PagedAttentionQ], 0))
	// The sequence of a token is the number of sequences that end at or before it.
	before := b.Call("ended", "LessOrEqual", ends, p.column("token_column", p.token))
	p.sequence = b.Op("sequence", "ReduceSum", []*onnx.Value{b.Op("ended_number", "Cast", []*onnx.Value{before},
		onnx.IntAttr("to", int64(onnx.Int64))), b.Integers("last", -1)}, onnx.IntAttr("keepdims", 0))
	p.at = b.Call("position", "Add", p.token, p.rowsOf("shift", b.Call("shifts", "Sub", p.past, p.starts), p.sequence))
	p.block = p.Size("block", b.In[PagedAttentionKeyCache], 1)
	return p
}

// column appends a dimension of 1.
func (p *pagedBuilder) column(name string, v *onnx.Value) *onnx.Value {
	return p.Call(name, "Unsqueeze", v, p.Integers("last", -1))
}

// rowsOf takes elements of the first dimension of v.
func (p *pagedBuilder) rowsOf(name string, v, index *onnx.Value) *onnx.Value {
	return p.Op(name, "Gather", []*onnx.Value{v, index}, onnx.IntAttr("axis", 0))
}

// slots returns the row of the pool that each token is written to, [S, 1].
func (p *pagedBuilder) slots(s op.Site) *onnx.Value {
	if s.Has(PagedAttentionSlotMapping) {
		given := p.Op("slots", "Cast", []*onnx.Value{p.In[PagedAttentionSlotMapping]},
			onnx.IntAttr("to", int64(onnx.Int64)))
		rows := p.Call("pool_rows", "Mul", p.Size("blocks", p.In[PagedAttentionKeyCache], 0), p.block)
		skipped := p.Call("skipped", "Less", given, p.Integers("zero_slot", 0))
		return p.column("slot_column", p.Call("slot", "Where", skipped, rows, given)) // the row after the pool
	}
	own := p.rowsOf("own_blocks", p.table, p.sequence)
	number := p.column("block_number", p.Call("block_of_position", "Div", p.at, p.block))
	block := p.Op("own_block", "GatherElements", []*onnx.Value{own, number}, onnx.IntAttr("axis", 1))
	return p.Call("slot", "Add", p.Call("block_start", "Mul", block, p.block), p.column("place_in_block",
		p.Call("place", "Mod", p.at, p.block)))
}

// written returns the pool in input cache with the new rows in input added at their slots.
func (p *pagedBuilder) written(name string, cache, added int, slots *onnx.Value, s op.Site) *onnx.Value {
	pool, rows := p.In[cache], p.In[added]
	shape := p.Call(name+"_shape", "Shape", pool)
	flat := p.Call(name+"_rows", "Reshape", pool, p.Joined(name+"_flat", 0, p.Integers("all_rows", -1),
		p.Call(name+"_row", "Slice", shape, p.Integers("two", 2), p.Integers("four", 4))))
	if !s.Has(PagedAttentionSlotMapping) {
		return p.Call(name, "Reshape", p.Call(name+"_filled", "ScatterND", flat, slots, rows), shape)
	}
	count := p.Size(name+"_count", flat, 0)
	spare := p.first(name+"_spare", flat, p.Integers("one", 1), 0)
	filled := p.Call(name+"_filled", "ScatterND", p.Joined(name+"_and_spare", 0, flat, spare), slots, rows)
	return p.Call(name, "Reshape", p.first(name+"_kept", filled, count, 0), shape)
}

// ofSequences returns the keys or values of each sequence, [B, longest, Hk, D] in float32. Those that no new token sees
// are 0: blocks may hold NaN there.
func (p *pagedBuilder) ofSequences(name string, pool *onnx.Value, window int64) *onnx.Value {
	shape := p.Call(name+"_pool", "Shape", pool)
	flat := p.Joined(name+"_shape", 0, p.Integers("copied", 0), p.Integers("all_rows", -1),
		p.Call(name+"_row", "Slice", shape, p.Integers("two", 2), p.Integers("four", 4)))
	all := p.Call(name+"_all", "Reshape", p.rowsOf(name+"_blocks", pool, p.table), flat)
	used := p.Float32(name+"_32", p.first(name+"_used", all, p.longest, 1))
	key := p.numbers("key", p.longest)
	exists := p.Call("exists", "Less", key, p.column("length_column", p.lengths))
	if window > 0 {
		early := p.Call("first_window_begin", "Sub", p.column("past_column", p.past), p.IntAttribute("window"))
		exists = p.Call("exists_in_window", "And", exists, p.Call("in_first_window", "Greater", key, early))
	}
	return p.Call(name, "Where", p.Call("exists_rows", "Unsqueeze", exists, p.Integers("behind", 2, 3)), used,
		p.Number("zero", 0))
}

// bias returns 0 for the keys that a token sees and minus infinity for the others, [B, 1, most, longest].
func (p *pagedBuilder) bias(attrs PagedAttention) *onnx.Value {
	key := p.numbers("key", p.longest)
	seen := p.Call("seen", "Less", key, p.Call("key_end", "Unsqueeze", p.lengths, p.Integers("behind_rows", 1, 2)))
	at := p.column("query_key", p.Call("query_position", "Add", p.column("past_column", p.past), p.step))
	if attrs.Causal {
		seen = p.Call("seen_causal", "And", seen, p.Call("not_later", "LessOrEqual", key, at))
	}
	if attrs.Window > 0 {
		early := p.Call("window_begin", "Sub", at, p.IntAttribute("window"))
		seen = p.Call("seen_window", "And", seen, p.Call("not_too_early", "Greater", key, early))
	}
	return p.Call("bias", "Unsqueeze", p.Call("bias_of_keys", "Where", seen, p.Number("zero", 0), p.Number("lowest",
		float32(math.Inf(-1)))), p.Integers("heads", 1))
}

// pagedForm is a way to use PagedAttention.
type pagedForm struct {
	causal, window, softcap, cyclic, slots, sink bool
	tokens, heads, keyHeads, width, valueWidth   int64
	sequences, blocks, block, most               int64 // B, N, M and C
}

// pagedForms covers every attribute and every input, steps of one token for each sequence, prompts, and no token.
var pagedForms = []pagedForm{
	{causal: true, tokens: 3, heads: 4, keyHeads: 2, width: 16, valueWidth: 16, sequences: 3, blocks: 13, block: 4,
		most: 4},
	{causal: true, window: true, tokens: 11, heads: 3, keyHeads: 1, width: 9, valueWidth: 7, sequences: 4, blocks: 17,
		block: 4, most: 4, slots: true},
	{causal: true, softcap: true, cyclic: true, tokens: 7, heads: 6, keyHeads: 2, width: 8, valueWidth: 12,
		sequences: 2, blocks: 9, block: 3, most: 4, sink: true},
	{tokens: 5, heads: 2, keyHeads: 2, width: 10, valueWidth: 10, sequences: 2, blocks: 8, block: 16, most: 1},
	{causal: true, tokens: 70, heads: 4, keyHeads: 2, width: 20, valueWidth: 33, sequences: 3, blocks: 31, block: 16,
		most: 9, sink: true},
	{causal: true, tokens: 0, heads: 2, keyHeads: 1, width: 8, valueWidth: 8, sequences: 2, blocks: 3, block: 4,
		most: 1},
}

// pagedExamples lists the forms that have these attributes.
func pagedExamples(s op.Site) [][][]int64 {
	attrs := op.Read[PagedAttention](s.Attributes)
	var list [][][]int64
	for _, f := range pagedForms {
		if f.causal != attrs.Causal || f.window != (attrs.Window > 0) || f.softcap != (attrs.Softcap > 0) ||
			f.cyclic != (attrs.HeadOrder == headCyclic) {
			continue
		}
		dims := [][]int64{{f.tokens, f.heads, f.width}, {f.tokens, f.keyHeads, f.width},
			{f.tokens, f.keyHeads, f.valueWidth}, {f.blocks, f.block, f.keyHeads, f.width},
			{f.blocks, f.block, f.keyHeads, f.valueWidth}, {f.sequences + 1}, {f.sequences},
			{f.sequences, f.most}, nil, nil}
		if f.slots {
			dims[PagedAttentionSlotMapping] = []int64{f.tokens}
		}
		if f.sink {
			dims[PagedAttentionSink] = []int64{f.heads}
		}
		list = append(list, dims)
	}
	return list
}

// PagedNumbers returns an integer input of a site with PagedAttention, to try it: sequences of unequal lengths, each in
// blocks of its own if there are enough.
func PagedNumbers(s op.Site, input int) []int64 {
	tokens, cache := s.Dims[PagedAttentionQ][0], s.Dims[PagedAttentionKeyCache]
	pool, block := cache[0], cache[1]
	batch, most := s.Dims[PagedAttentionBlockTable][0], s.Dims[PagedAttentionBlockTable][1]
	cum := func(b int64) int64 { return tokens * b * b / (batch * batch) }
	past := func(b int64) int64 { return max(0, most*block+cum(b)-cum(b+1)-3*b) }
	table := func(b, i int64) int64 { return pool - 1 - (b*most+i)%pool }
	var list []int64
	add := func(n int64, number func(i int64) int64) []int64 {
		for i := range n {
			list = append(list, number(i))
		}
		return list
	}
	switch input {
	case PagedAttentionCumulativeSequenceLength:
		return add(batch+1, cum)
	case PagedAttentionPastSeqlens:
		return add(batch, past)
	case PagedAttentionBlockTable:
		return add(batch*most, func(i int64) int64 { return table(i/most, i%most) })
	}
	for b := range batch {
		for i := range cum(b+1) - cum(b) {
			slot, at := int64(-1), past(b)+i
			if len(list)%3 != 1 {
				slot = table(b, at/block)*block + at%block
			}
			list = append(list, slot)
		}
	}
	return list
}
