package attention

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// PoolMost maps the types of quantized pools to the greatest magnitude of their codes.
var PoolMost = map[onnx.DataType]float64{onnx.Int8: 127, onnx.Float8E4M3FN: 448}

// Scales of pools are powers of two with exponents from leastExponent to greatestExponent. Codes times these scales
// cover float32.
const leastExponent, greatestExponent = -126, 122

// quantizedPagedAttention is PagedAttention with pools of 8-bit codes. The first 8 inputs are those of PagedAttention.
var quantizedPagedAttention = &op.Op{
	Name: "QPagedAttention",
	Summary: "PagedAttention whose pool has codes of int8 or float8e4m3fn, with a scale for each block and head that " +
		"grows while the block fills.",
	Formula: []string{
		"For the pool key_cache with key_scale and the rows k; likewise for value_cache, value_scale and v:",
		"slot[t] as in PagedAttention; block b has the new rows t with slot[t] in [b * M, (b+1) * M)",
		"b starts over: slot[t] = b * M for some t, the first row of the block",
		"old[b,g] = b starts over ? 2^-126 : key_scale[b,g]",
		"least[b,g] = the least power of two from 2^-126 on with max(|k[t,g,:]|) <= most * least[b,g] over the new",
		"             rows t of b; most = 127 for int8, 448 for float8e4m3fn",
		"key_scale_out[b,g] = b has a new row and least[b,g] > old[b,g] ? least[b,g] : old[b,g]",
		"the code of a new row is round_Q(k[t,g,:] / key_scale_out[b,g])",
		"the code c of another row is b starts over ? 0 : round_Q(c * old[b,g] / key_scale_out[b,g]), which is c if",
		"             the scale did not grow",
		"round_Q to int8: to the nearest integer, to even in the middle, within -128 and 127",
		"K = key_cache_out * key_scale_out, V = value_cache_out * value_scale_out;  Y as in PagedAttention",
		"The errors of finite keys are, with s = key_scale_out, likewise of values:",
		"int8: |K - k| <= s/2, and less than s if the scale grew after k was written",
		"float8e4m3fn: |K - k| <= |k|/16 + s/1024, and at most |k|/16 + s/512 if the scale grew after k was written",
		"If a new row of a block and head has an infinity or a NaN, its codes are not specified and the scale is NaN",
		"             until the block starts over.",
	},
	Family: attentionFamily,
	Inputs: slices.Concat(pagedInputs("Q"), []op.Param{
		{Name: "key_scale", Type: "float32", Dims: "N Hk", Doc: "of the codes of each block and head"},
		{Name: "value_scale", Type: "float32", Dims: "N Hk"},
		pagedAttention.Inputs[PagedAttentionSlotMapping], pagedAttention.Inputs[PagedAttentionSink],
	}),
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "S H Dv"},
		{Name: "key_cache_out", Type: "Q", Dims: "N M Hk D"},
		{Name: "value_cache_out", Type: "Q", Dims: "N M Hk Dv"},
		{Name: "key_scale_out", Type: "float32", Dims: "N Hk"},
		{Name: "value_scale_out", Type: "float32", Dims: "N Hk"},
	},
	Attributes: op.Within("attention", "PagedAttention", pagedAttributes),
	Types:      quantizedPagedTypes(),
	Variables:  []op.Variable{{Name: "Q", Doc: "one type of codes"}},
	Source:     "PagedAttention; the OCP microscaling formats (2023) have scales that are powers of two, for 32 elements",
	Devices:    pagedAttention.Devices,
	Where:      pagedAttention.Where,
	Check: func(s op.Site) error {
		if s.Types[QPagedAttentionKeyCache] == onnx.Float8E4M3FN && s.Opset < op.Float8Opset {
			return fmt.Errorf("mojo.QPagedAttention with pools of float8e4m3fn needs opset %d or newer: the model "+
				"imports opset %d", op.Float8Opset, s.Opset)
		}
		return nil
	},
	Shapes: func(s op.Site) (list [][][]int64) {
		for _, dims := range pagedExamples(s) {
			list = append(list, withScales(dims))
		}
		return list
	},
	Variant: func(s op.Site) string {
		return pagedVariant(s) + "_" + s.Types[QPagedAttentionKeyCache].String() +
			op.IfGiven(s, QPagedAttentionSlotMapping, "_slot_mapping") + op.IfGiven(s, QPagedAttentionSink, "_sink")
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{2, op.WideHeads, 128}, {2, 8, 128}, {2, 8, 128}, {5, 16, 8, 128},
			{5, 16, 8, 128}, {3}, {2}, {2, 2}, {5, 8}, {5, 8}}, onnx.IntAttr("causal", 1))}
	},
	Body: quantizedPagedBody,
}

// withScales returns the shapes of QPagedAttention's inputs for those of PagedAttention's.
func withScales(dims [][]int64) [][]int64 {
	pool := dims[PagedAttentionKeyCache]
	return slices.Insert(slices.Clone(dims), PagedAttentionSlotMapping, []int64{pool[0], pool[2]},
		[]int64{pool[0], pool[2]})
}

func quantizedPagedTypes() (list []op.Combination) {
	for _, c := range op.Independent("T") {
		list = append(list, c.With("Q", onnx.Int8), c.With("Q", onnx.Float8E4M3FN))
	}
	return list
}

// quantizedPagedBody is pagedBody with codes in the pools.
func quantizedPagedBody(b *op.Body, s op.Site) []*onnx.Value {
	// The builder reads inputs in the order of PagedAttention.
	inner, in := *b, slices.Clone(b.In)
	inner.In = slices.Delete(in, QPagedAttentionKeyScale, QPagedAttentionValueScale+1)
	// Runtimes have few kernels for float8e4m3fn besides Cast.
	inner.In[PagedAttentionKeyCache] = b.Float32("key_codes", b.In[QPagedAttentionKeyCache])
	inner.In[PagedAttentionValueCache] = b.Float32("value_codes", b.In[QPagedAttentionValueCache])
	types := make([]onnx.DataType, QPagedAttentionSink+1)
	copy(types, s.Types)
	of := op.Site{Opset: s.Opset, Attributes: s.Attributes,
		Types: slices.Delete(types, QPagedAttentionKeyScale, QPagedAttentionValueScale+1)}
	inner.Site = of
	p := &codesBuilder{pagedBuilder: newPagedBuilder(&inner), codes: s.Types[QPagedAttentionKeyCache]}
	p.most = PoolMost[p.codes]
	p.slot = p.slots(of)
	keys, keyScale := p.coded("key", PagedAttentionKeyCache, PagedAttentionK, b.In[QPagedAttentionKeyScale])
	values, valueScale := p.coded("value", PagedAttentionValueCache, PagedAttentionV, b.In[QPagedAttentionValueScale])
	y := p.attended(of, p.decoded("keys", keys, keyScale), p.decoded("values", values, valueScale))
	return []*onnx.Value{y, keys, values, keyScale, valueScale}
}

// codesBuilder builds the pools of QPagedAttention.
type codesBuilder struct {
	*pagedBuilder
	codes onnx.DataType
	most  float64
	slot  *onnx.Value // [S, 1]
}

// blocksOf returns a number [N, Hk] for each pool block and head as [N, 1, Hk, 1].
func (p *codesBuilder) blocksOf(name string, v *onnx.Value) *onnx.Value {
	return p.Call(name, "Unsqueeze", v, p.Integers("rows_and_channels", 1, 3))
}

func (p *codesBuilder) decoded(name string, codes, scale *onnx.Value) *onnx.Value {
	return p.Call(name+"_decoded", "Mul", p.Float32(name+"_codes", codes), p.blocksOf(name+"_scales", scale))
}

// coded returns the pool in input cache with the codes of the new rows in input added, and its scales.
func (p *codesBuilder) coded(name string, cache, added int, scale *onnx.Value) (codes, scales *onnx.Value) {
	pool, rows := p.In[cache], p.Float32(name+"_32", p.In[added])
	shape := p.Call(name+"_shape", "Shape", pool)
	greatest, starts := p.marks(name, rows, shape)
	mark := func(what string, i int64, of *onnx.Value) *onnx.Value { // [N, Hk]
		index := p.Constant("mark", onnx.IntAttr("value_int", i))
		return p.Op(name+"_"+what, "Gather", []*onnx.Value{of, index}, onnx.IntAttr("axis", 2))
	}
	some := func(what string, v *onnx.Value) *onnx.Value {
		return p.Call(name+"_"+what, "Greater", v, p.Number("zero", 0))
	}
	isNew, over := some("is_new", mark("new", 2, greatest)), some("starts_over", mark("first", 2, starts))
	old := p.Call(name+"_old_scale", "Where", over, p.Number("least_scale", 0x1p-126), scale)
	least := p.leastScale(name, mark("most", 0, greatest))
	grows := p.Call(name+"_grows", "And", isNew, p.Call(name+"_is_greater", "Greater", least, old))
	scales = p.Call(name+"_grown", "Where", grows, least, old)
	factor := p.Call(name+"_factor", "Where", grows, p.Call(name+"_share", "Div", old, least), p.Number("one", 1))

	moved := p.Call(name+"_moved", "Mul", pool, p.blocksOf(name+"_factors", factor))
	kept := p.Call(name+"_kept", "Where", p.blocksOf(name+"_start", over), p.Number("zero", 0), moved)
	last := p.Call(name+"_last_block", "Sub", p.Size(name+"_blocks", pool, 0), p.Integers("one", 1))
	block := p.Call(name+"_own_block", "Min", p.Call(name+"_block_of_slot", "Div", p.slot, p.block), last)
	own := p.rowsOf(name+"_own_scale", scales, p.Call(name+"_own_row", "Squeeze", block, p.Integers("last", -1)))
	steps := p.Call(name+"_steps", "Div", rows, p.column(name+"_own_column", own))

	flat := p.Call(name+"_flat", "Reshape", kept, p.Joined(name+"_rows", 0, p.Integers("all_rows", -1),
		p.Call(name+"_row", "Slice", shape, p.Integers("two", 2), p.Integers("four", 4))))
	count := p.Size(name+"_count", flat, 0)
	spare := p.first(name+"_spare", flat, p.Integers("one", 1), 0)
	all := p.Call(name+"_filled", "ScatterND", p.Joined(name+"_and_spare", 0, flat, spare), p.slot, steps)
	out := p.Call(name+"_pool", "Reshape", p.first(name+"_pool_rows", all, count, 0), shape)
	low := -p.most
	if p.codes == onnx.Int8 {
		out, low = p.Call(name+"_whole", "Round", out), low-1
	}
	out = p.Call(name+"_clipped", "Clip", out, p.Number("low", float32(low)), p.Number("high", float32(p.most)))
	codes = p.Op(name+"_cache_out", "Cast", []*onnx.Value{out}, onnx.IntAttr("to", int64(p.codes)))
	bad := some("is_bad", mark("bad", 1, greatest))
	return codes, p.Call(name+"_scale_out", "Where", bad, p.Number("nan", float32(math.NaN())), scales)
}

// marks returns three numbers for each block and head, [N, Hk, 3]: the greatest magnitude of the new rows, 1 if one is
// not finite, and 1 if there is a new row. starts has the numbers of the first row of the block.
func (p *codesBuilder) marks(name string, rows, shape *onnx.Value) (greatest, starts *onnx.Value) {
	size := p.Call(name+"_magnitude", "Abs", rows)
	finite := p.Call(name+"_is_finite", "LessOrEqual", size, p.Number("greatest_float", math.MaxFloat32))
	zero, one := p.Number("zero", 0), p.Number("one", 1)
	most := p.Greatest(name+"_row_most", p.Call(name+"_finite", "Where", finite, size, zero))
	bad := p.Greatest(name+"_row_bad", p.Call(name+"_not_finite", "Where", finite, zero, one))
	isNew := p.Call(name+"_row_new", "Add", p.Call(name+"_nothing", "Mul", most, zero), one)
	marks := p.Joined(name+"_marks", 2, most, bad, isNew)

	part := func(what string, from, to int64) *onnx.Value {
		return p.Call(name+"_"+what, "Slice", shape, p.Integers("from", from), p.Integers("to", to))
	}
	three, blocks, block, heads := p.Integers("three", 3), part("n", 0, 1), part("m", 1, 2), part("heads", 2, 3)
	count := p.Call(name+"_pool_size", "Mul", blocks, block)
	room := p.Joined(name+"_room", 0, p.Call(name+"_and_one", "Add", count, p.Integers("one", 1)), heads, three)
	nothing := p.Call(name+"_no_marks", "ConstantOfShape", room)
	marked := p.first(name+"_marked", p.Call(name+"_all_marks", "ScatterND", nothing, p.slot, marks), count, 0)
	byBlock := p.Call(name+"_by_block", "Reshape", marked, p.Joined(name+"_block_marks", 0, blocks, block, heads,
		three))
	turned := p.Op(name+"_turned", "Transpose", []*onnx.Value{byBlock}, onnx.IntsAttr("perm", []int64{0, 2, 3, 1}))
	behind := p.Integers("last", -1)
	starts = p.Call(name+"_starts", "Squeeze", p.first(name+"_first_row", turned, p.Integers("one", 1), 3), behind)
	return p.Call(name+"_greatest", "Squeeze", p.Greatest(name+"_block_most", turned), behind), starts
}

// leastScale returns the least power of two times which the codes reach a magnitude. A logarithm may miss the exponent
// by one, so its neighbors are compared; powers of two times codes are exact.
func (p *codesBuilder) leastScale(name string, magnitude *onnx.Value) *onnx.Value {
	powers := make([]float32, greatestExponent-leastExponent+1)
	for i := range powers {
		powers[i] = float32(math.Ldexp(1, leastExponent+i))
	}
	table := p.Constant("powers", onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{int64(len(powers))}, powers)))
	log := p.Call(name+"_log", "Mul", p.Call(name+"_ln", "Log", magnitude), p.Number("log2_e", math.Log2E))
	index := p.Call(name+"_exponent", "Ceil", p.Call(name+"_log_index", "Sub", log,
		p.Number("log_of_least", float32(math.Log2(p.most)+leastExponent))))
	index = p.Call(name+"_index_in_table", "Clip", index, p.Number("zero", 0), p.Number("end", float32(len(powers)-1)))
	x := p.rowsOf(name+"_power", table, p.Op(name+"_index", "Cast", []*onnx.Value{index},
		onnx.IntAttr("to", int64(onnx.Int64))))
	most, two, half := p.Number("most", float32(p.most)), p.Number("two", 2), p.Number("half", 0.5)
	low := p.Call(name+"_is_low", "Greater", magnitude, p.Call(name+"_covers", "Mul", x, most))
	x = p.Call(name+"_raised", "Where", low, p.Call(name+"_twice", "Mul", x, two), x)
	less := p.Call(name+"_half", "Mul", x, half)
	high := p.Call(name+"_is_high", "LessOrEqual", magnitude, p.Call(name+"_half_covers", "Mul", less, most))
	return p.Call(name+"_least", "Max", p.Call(name+"_lowered", "Where", high, less, x),
		p.Number("least_scale", 0x1p-126))
}
