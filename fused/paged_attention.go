package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// pagedAttention is Attention for tokens of several sequences that are packed without padding. Their keys and values
// are in blocks of a pool that all sequences share. Inputs and outputs have the names of com.microsoft.PagedAttention
// if they mean the same.
var pagedAttention = &Op{
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
	Inputs: []Param{
		{Name: "q", Type: "T", Dims: "S H D", Doc: "the tokens of all sequences, in order"},
		{Name: "k", Type: "T", Dims: "S Hk D"},
		{Name: "v", Type: "T", Dims: "S Hk Dv"},
		{Name: "key_cache", Type: "T", Dims: "N M Hk D", Doc: "a pool of N blocks of M tokens"},
		{Name: "value_cache", Type: "T", Dims: "N M Hk Dv"},
		{Name: "cumulative_sequence_length", Type: "int32", Dims: "B+1",
			Doc: "index in q of the first token of each sequence, then S; not descending"},
		{Name: "past_seqlens", Type: "int32", Dims: "B", Doc: "tokens of each sequence that the pool has already"},
		{Name: "block_table", Type: "int32", Dims: "B C",
			Doc: "the blocks of each sequence, in order, 0 to N-1; -1 is allowed after the block of its last token"},
		{Name: "slot_mapping", Type: "int32", Optional: true, Dims: "S",
			Doc: "the row of the pool that a token is written to, different for all tokens; -1: not written"},
		{Name: "sink", Type: "float32", Optional: true, Dims: "H",
			Doc: "a score of each head that no value goes with"},
	},
	Outputs: []Param{
		{Name: "Y", Type: "T", Dims: "S H Dv"},
		{Name: "key_cache_out", Type: "T", Dims: "N M Hk D"},
		{Name: "value_cache_out", Type: "T", Dims: "N M Hk Dv"},
	},
	Attributes: []AttributeSpec{attentionAttributes[0],
		{Name: "causal", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1}, Doc: "1: no token sees a later key"},
		attentionAttributes[2], attentionAttributes[3], attentionAttributes[5]},
	Types: independent("T"),
	Source: "Kwon et al., PagedAttention (2023); attention as in Attention, the pool as in " +
		"com.microsoft.PagedAttention",
	Where:    []Relation{{"Hk divides H", "heads of k that divide those of q"}},
	examples: pagedExamples,
	overload: func(s Site) string {
		attrs := Read[PagedAttention](s.Attributes)
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
		if attrs.HeadOrder == headCyclic {
			name += "_" + headCyclic
		}
		return name + named(s, PagedAttentionSlotMapping, "_slot_mapping") + named(s, PagedAttentionSink, "_sink")
	},
	define: pagedBody,
}

// pagedBody pads the queries to [B, most tokens, H, D], takes each sequence's keys and values out of the pool, and
// attends by the definition of Attention with a bias that is minus infinity for keys that are not seen.
func pagedBody(b *body, s Site) []*onnx.Value {
	attrs := Read[PagedAttention](s.Attributes)
	p := newPagedBuilder(b)
	slots := p.slots(s)
	keys := p.written("key_cache_out", PagedAttentionKeyCache, PagedAttentionK, slots, s)
	values := p.written("value_cache_out", PagedAttentionValueCache, PagedAttentionV, slots, s)

	attends := Site{Opset: s.Opset, Types: make([]onnx.DataType, AttentionSink+1), Attributes: Attention{
		Scale: attrs.Scale, Softcap: attrs.Softcap, Empty: emptyZero, HeadOrder: attrs.HeadOrder, QLayout: layoutBSNH,
		KLayout: layoutBSNH, VLayout: layoutBSNH, YLayout: layoutBSNH}.Attributes()}
	inner := &body{root: b.root, g: b.g, site: attends, in: make([]*onnx.Value, AttentionSink+1)}
	give := func(to int, v *onnx.Value, t onnx.DataType) { inner.in[to], attends.Types[to] = v, t }
	index := b.call("padded_index", "Min", b.call("padded_token", "Add", p.column("starts_column", p.starts), p.step),
		b.call("last_token", "Sub", p.size("tokens", b.in[PagedAttentionQ], 0), b.integers("one", 1)))
	give(AttentionQ, p.rowsOf("padded", b.in[PagedAttentionQ], index), s.Types[PagedAttentionQ])
	give(AttentionK, p.ofSequences("sequence_keys", keys), f32)
	give(AttentionV, p.ofSequences("sequence_values", values), f32)
	give(AttentionBias, p.bias(attrs), f32)
	if s.has(PagedAttentionSink) {
		give(AttentionSink, b.in[PagedAttentionSink], f32)
	}
	inner.site = attends
	y := attentionBody(inner, attends)[0]

	flat := b.call("rows_shape", "Concat", b.integers("all_rows", -1), p.size("y_heads", y, 2), p.size("y_width", y, 3))
	flat.Producer.SetAttr(onnx.IntAttr("axis", 0))
	row := b.call("row", "Add", b.call("first_row", "Mul", p.sequence, p.most), b.call("offset", "Sub", p.token,
		p.rowsOf("own_start", p.starts, p.sequence)))
	return []*onnx.Value{p.rowsOf("Y", b.call("rows", "Reshape", y, flat), row), keys, values}
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

func newPagedBuilder(b *body) *pagedBuilder {
	p := &pagedBuilder{attentionBuilder: &attentionBuilder{body: b}}
	wide := func(name string, i int) *onnx.Value {
		return b.op(name, "Cast", []*onnx.Value{b.in[i]}, onnx.IntAttr("to", int64(onnx.Int64)))
	}
	cum, front := wide("cumulative", PagedAttentionCumulativeSequenceLength), b.integers("front", 0)
	p.past, p.table = wide("past", PagedAttentionPastSeqlens), wide("table", PagedAttentionBlockTable)
	p.starts = b.call("starts", "Slice", cum, front, b.integers("before_last", -1))
	ends := b.call("ends", "Slice", cum, b.integers("second", 1), b.integers("end", math.MaxInt64))
	counts := b.call("counts", "Sub", ends, p.starts)
	p.lengths = b.call("lengths", "Add", p.past, counts)
	p.most = b.call("most_tokens", "Unsqueeze", p.greatest("most_tokens_number", counts), front)
	p.longest = b.call("longest", "Unsqueeze", p.greatest("longest_number", p.lengths), front)
	p.step = p.numbers("step", p.most)
	p.token = p.numbers("token", p.size("token_count", b.in[PagedAttentionQ], 0))
	// The sequence of a token is the number of sequences that end at or before it.
	before := b.call("ended", "LessOrEqual", ends, p.column("token_column", p.token))
	p.sequence = b.op("sequence", "ReduceSum", []*onnx.Value{b.op("ended_number", "Cast", []*onnx.Value{before},
		onnx.IntAttr("to", int64(onnx.Int64))), b.integers("last", -1)}, onnx.IntAttr("keepdims", 0))
	p.at = b.call("position", "Add", p.token, p.rowsOf("shift", b.call("shifts", "Sub", p.past, p.starts), p.sequence))
	p.block = p.size("block", b.in[PagedAttentionKeyCache], 1)
	return p
}

// column appends a dimension of 1.
func (p *pagedBuilder) column(name string, v *onnx.Value) *onnx.Value {
	return p.call(name, "Unsqueeze", v, p.integers("last", -1))
}

// rowsOf takes elements of the first dimension of v.
func (p *pagedBuilder) rowsOf(name string, v, index *onnx.Value) *onnx.Value {
	return p.op(name, "Gather", []*onnx.Value{v, index}, onnx.IntAttr("axis", 0))
}

// slots returns the row of the pool that each token is written to, [S, 1].
func (p *pagedBuilder) slots(s Site) *onnx.Value {
	if s.has(PagedAttentionSlotMapping) {
		given := p.op("slots", "Cast", []*onnx.Value{p.in[PagedAttentionSlotMapping]},
			onnx.IntAttr("to", int64(onnx.Int64)))
		rows := p.call("pool_rows", "Mul", p.size("blocks", p.in[PagedAttentionKeyCache], 0), p.block)
		skipped := p.call("skipped", "Less", given, p.integers("zero_slot", 0))
		return p.column("slot_column", p.call("slot", "Where", skipped, rows, given)) // the row after the pool
	}
	own := p.rowsOf("own_blocks", p.table, p.sequence)
	number := p.column("block_number", p.call("block_of_position", "Div", p.at, p.block))
	block := p.op("own_block", "GatherElements", []*onnx.Value{own, number}, onnx.IntAttr("axis", 1))
	return p.call("slot", "Add", p.call("block_start", "Mul", block, p.block), p.column("place_in_block",
		p.call("place", "Mod", p.at, p.block)))
}

// written returns the pool in input cache with the new rows in input added at their slots.
func (p *pagedBuilder) written(name string, cache, added int, slots *onnx.Value, s Site) *onnx.Value {
	pool, rows := p.in[cache], p.in[added]
	shape := p.call(name+"_shape", "Shape", pool)
	flat := p.call(name+"_rows", "Reshape", pool, p.joined(name+"_flat", 0, p.integers("all_rows", -1),
		p.call(name+"_row", "Slice", shape, p.integers("two", 2), p.integers("four", 4))))
	if !s.has(PagedAttentionSlotMapping) {
		return p.call(name, "Reshape", p.call(name+"_filled", "ScatterND", flat, slots, rows), shape)
	}
	count := p.size(name+"_count", flat, 0)
	spare := p.first(name+"_spare", flat, p.integers("one", 1), 0)
	filled := p.call(name+"_filled", "ScatterND", p.joined(name+"_and_spare", 0, flat, spare), slots, rows)
	return p.call(name, "Reshape", p.first(name+"_kept", filled, count, 0), shape)
}

// ofSequences returns the keys or values of each sequence, [B, longest, Hk, D] in float32. Those after its tokens are
// 0: blocks may hold NaN there.
func (p *pagedBuilder) ofSequences(name string, pool *onnx.Value) *onnx.Value {
	shape := p.call(name+"_pool", "Shape", pool)
	flat := p.joined(name+"_shape", 0, p.integers("copied", 0), p.integers("all_rows", -1),
		p.call(name+"_row", "Slice", shape, p.integers("two", 2), p.integers("four", 4)))
	all := p.call(name+"_all", "Reshape", p.rowsOf(name+"_blocks", pool, p.table), flat)
	used := p.float32(name+"_32", p.first(name+"_used", all, p.longest, 1))
	exists := p.call("exists", "Less", p.numbers("key", p.longest), p.column("length_column", p.lengths))
	return p.call(name, "Where", p.call("exists_rows", "Unsqueeze", exists, p.integers("behind", 2, 3)), used,
		p.number("zero", 0))
}

// bias returns 0 for the keys that a token sees and minus infinity for the others, [B, 1, most, longest].
func (p *pagedBuilder) bias(attrs PagedAttention) *onnx.Value {
	key := p.numbers("key", p.longest)
	seen := p.call("seen", "Less", key, p.call("key_end", "Unsqueeze", p.lengths, p.integers("behind_rows", 1, 2)))
	at := p.column("query_key", p.call("query_position", "Add", p.column("past_column", p.past), p.step))
	if attrs.Causal {
		seen = p.call("seen_causal", "And", seen, p.call("not_later", "LessOrEqual", key, at))
	}
	if attrs.Window > 0 {
		early := p.call("window_begin", "Sub", at, p.intAttribute("window"))
		seen = p.call("seen_window", "And", seen, p.call("not_too_early", "Greater", key, early))
	}
	return p.call("bias", "Unsqueeze", p.call("bias_of_keys", "Where", seen, p.number("zero", 0), p.number("lowest",
		float32(math.Inf(-1)))), p.integers("heads", 1))
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
func pagedExamples(s Site) [][][]int64 {
	attrs := Read[PagedAttention](s.Attributes)
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
