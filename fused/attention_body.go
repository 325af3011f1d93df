package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// attentionBody computes scores [B, H, S, L]. In the two products, the heads that share keys have a separate dimension,
// so that keys and values are broadcast instead of repeated.
func attentionBody(b *body, s Site) []*onnx.Value {
	attrs := Read[Attention](s.Attributes)
	a := &attentionBuilder{body: b, axis: 2}
	if attrs.HeadOrder == headCyclic {
		a.axis = 1
	}
	q := a.byHeads("q_heads", b.in[AttentionQ], attrs.QLayout)
	k := a.byHeads("k_heads", b.in[AttentionK], attrs.KLayout)
	v := a.byHeads("v_heads", b.in[AttentionV], attrs.VLayout)
	a.keys = a.size("keys", k, 2)
	a.queries = a.size("queries", q, 2)
	presentKey, presentValue := k, v
	switch {
	case s.has(AttentionPastLength):
		a.length = b.call("length", "Add", b.in[AttentionPastLength], a.keys)
		at := a.rows()
		presentKey = a.overwritten("present_key", b.in[AttentionPastKey], k, at)
		presentValue = a.overwritten("present_value", b.in[AttentionPastValue], v, at)
		a.longest = b.call("longest", "Unsqueeze", a.greatest("longest_number", a.length), b.integers("front", 0))
	case s.has(AttentionPastKey):
		presentKey = a.joined("present_key", 2, b.in[AttentionPastKey], k)
		presentValue = a.joined("present_value", 2, b.in[AttentionPastValue], v)
	}
	allKeys, allValues := b.float32("keys_32", presentKey), b.float32("values_32", presentValue)
	if a.longest == nil {
		a.longest = a.size("longest", allKeys, 2)
	} else {
		allKeys = a.first("keys_used", allKeys, a.longest, 2)
		allValues = a.first("values_used", allValues, a.longest, 2)
	}
	heads, keyHeads := a.size("heads", q, 1), a.size("key_heads", presentKey, 1)
	a.split(heads, keyHeads)
	scaled := b.call("scaled", "Mul", b.float32("q_32", q), b.attribute("scale"))
	scores := a.product("scores", scaled, b.op("keys_transposed", "Transpose", []*onnx.Value{allKeys},
		onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	if attrs.Softcap > 0 {
		cap := b.attribute("softcap")
		scores = b.call("capped", "Mul", b.call("tanh", "Tanh", b.call("uncapped", "Div", scores, cap)), cap)
	}
	if s.has(AttentionBias) {
		scores = b.call("biased", "Add", scores, b.in[AttentionBias])
	}
	exists, seen := a.masks(s)
	lowest := b.number("lowest", float32(math.Inf(-1)))
	if seen != nil {
		scores = b.call("masked", "Where", seen, scores, lowest)
	}
	if exists != nil { // rows past the end may be NaN, and 0 * NaN is not 0
		column := b.call("exists_column", "Unsqueeze", b.call("exists_row", "Squeeze", exists, b.integers("row", 2)),
			b.integers("last", -1))
		allValues = b.call("values", "Where", column, allValues, b.number("zero", 0))
	}
	p := a.softmax(s, scores, exists)
	y := a.product("attended", p, allValues)
	if attrs.YLayout == layoutBSNH {
		y = a.swapped("attended_rows", y)
	}
	return []*onnx.Value{b.round("Y", y, AttentionQ), presentKey, presentValue}
}

// attentionBuilder builds the definition of Attention. Sizes are vectors of one int64.
type attentionBuilder struct {
	*body
	axis            int64       // the dimension of the heads that share keys, when separate
	keys, queries   *onnx.Value // N and S
	length          *onnx.Value // L of each sequence; nil if all equal longest
	longest         *onnx.Value // the greatest L
	parted, unified *onnx.Value // shapes with the heads in two dimensions, and in one
}

// byHeads returns v in the layout bnsh.
func (a *attentionBuilder) byHeads(name string, v *onnx.Value, layout string) *onnx.Value {
	if layout == layoutBSNH {
		return a.swapped(name, v)
	}
	return v
}

// swapped returns v with heads and sequence exchanged.
func (a *attentionBuilder) swapped(name string, v *onnx.Value) *onnx.Value {
	return a.op(name, "Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// first takes the first n elements of v along an axis.
func (a *attentionBuilder) first(name string, v, n *onnx.Value, axis int64) *onnx.Value {
	return a.call(name, "Slice", v, a.integers("start", 0), n, a.integers("axis", axis))
}

// greatest returns the greatest element of a vector of integers.
func (a *attentionBuilder) greatest(name string, v *onnx.Value) *onnx.Value {
	return a.op(name, "ReduceMax", []*onnx.Value{v}, onnx.IntAttr("keepdims", 0))
}

// numbers returns 0, 1, ..., n-1.
func (a *attentionBuilder) numbers(name string, n *onnx.Value) *onnx.Value {
	zero, one := a.constant("zero", onnx.IntAttr("value_int", 0)), a.constant("one", onnx.IntAttr("value_int", 1))
	return a.call(name, "Range", zero, a.call(name+"_end", "Squeeze", n, a.integers("front", 0)), one)
}

// perSequence reshapes a vector with one number for each sequence, or one for all, to [B, 1, 1, 1].
func (a *attentionBuilder) perSequence(name string, v *onnx.Value) *onnx.Value {
	return a.call(name, "Unsqueeze", v, a.integers("behind", 1, 2, 3))
}

// rows returns the source of each row of the updated buffers, as an index into [buffer, new rows]: [B, 1, M, 1].
func (a *attentionBuilder) rows() *onnx.Value {
	room := a.size("room", a.in[AttentionPastKey], 2)
	all := a.call("row", "Unsqueeze", a.numbers("row_numbers", room), a.integers("last", -1))
	past := a.perSequence("past_length_column", a.in[AttentionPastLength])
	isNew := a.call("is_new", "And", a.call("is_behind", "GreaterOrEqual", all, past),
		a.call("is_before", "Less", all, a.perSequence("length_column", a.length)))
	moved := a.call("row_of_new", "Add", a.call("row_behind", "Sub", all, past), room)
	return a.call("row_taken", "Where", isNew, moved, all)
}

// overwritten returns the buffer past with the rows of v written at their places.
func (a *attentionBuilder) overwritten(name string, past, v, at *onnx.Value) *onnx.Value {
	index := a.call(name+"_rows", "Expand", at, a.call(name+"_shape", "Shape", past))
	return a.op(name, "GatherElements", []*onnx.Value{a.joined(name+"_and_new", 2, past, v), index},
		onnx.IntAttr("axis", 2))
}

// split makes the shapes with heads in one and in two dimensions. A 0 in them copies a dimension, which may then be 0.
func (a *attentionBuilder) split(heads, keyHeads *onnx.Value) {
	group := a.call("group", "Div", heads, keyHeads)
	one, two := keyHeads, group
	if a.axis == 1 {
		one, two = group, keyHeads
	}
	copied, last := a.integers("copied", 0), a.integers("copied_last", 0, 0)
	a.parted = a.joined("parted", 0, copied, one, two, last)
	a.unified = a.joined("unified", 0, copied, heads, a.integers("whole", 1), last)
}

// product multiplies the matrices of v, with H heads, by the matrices of w, with Hk heads.
func (a *attentionBuilder) product(name string, v, w *onnx.Value) *onnx.Value {
	between := a.integers("between", 2)
	v = a.call(name+"_parted", "Reshape", a.call(name+"_left", "Unsqueeze", v, between), a.parted)
	y := a.call(name+"_product", "MatMul", v, a.call(name+"_right", "Unsqueeze", w, a.integers("shared", a.axis)))
	return a.call(name, "Squeeze", a.call(name+"_unified", "Reshape", y, a.unified), between)
}

// masks returns which keys exist, [B, 1, 1, L], and which keys a query sees. Each is nil if it is all keys.
func (a *attentionBuilder) masks(s Site) (exists, seen *onnx.Value) {
	attrs := Read[Attention](s.Attributes)
	and := func(name string, v, w *onnx.Value) *onnx.Value {
		if v == nil {
			return w
		}
		return a.call(name, "And", v, w)
	}
	key := a.numbers("key", a.longest)
	length := a.longest
	if a.length != nil {
		length = a.perSequence("key_end", a.length)
		exists = a.call("exists", "Less", key, length)
		seen = exists
	}
	causal, window := attrs.Causal, attrs.Window > 0
	if causal || window {
		query := a.call("query", "Unsqueeze", a.numbers("query_number", a.queries), a.integers("last", -1))
		at := a.call("query_key", "Add", query, a.call("query_offset", "Sub", length, a.queries))
		if causal {
			seen = and("seen_causal", seen, a.call("not_later", "LessOrEqual", key, at))
		}
		if window {
			before := a.call("window_begin", "Sub", at, a.intAttribute("window"))
			seen = and("seen_window", seen, a.call("not_too_early", "Greater", key, before))
		}
	}
	if s.has(AttentionKeyValid) {
		used := a.first("key_valid_used", a.in[AttentionKeyValid], a.longest, 1)
		if causal || window {
			// A mask of one key would be broadcast to all keys. The kernels refuse it, and nodes that count positions
			// by its length mean something else. So this Reshape fails.
			used = a.call("key_valid_of_all", "Reshape", used, a.joined("key_valid_dims", 0, a.integers("copied", 0),
				a.longest))
		}
		valid := a.op("key_valid_bool", "Cast", []*onnx.Value{used}, onnx.IntAttr("to", int64(onnx.Bool)))
		seen = and("seen_valid", seen, a.call("valid", "Unsqueeze", valid, a.integers("heads_and_queries", 1, 2)))
	}
	return exists, seen
}

// softmax returns the probabilities of scores. A score of minus infinity counts as absent.
func (a *attentionBuilder) softmax(s Site, scores, exists *onnx.Value) *onnx.Value {
	last, keep := a.integers("last", -1), onnx.IntAttr("keepdims", 1)
	var most *onnx.Value
	if s.Opset < reduceAxesOpset {
		most = a.op("most", "ReduceMax", []*onnx.Value{scores}, onnx.IntsAttr("axes", []int64{-1}), keep)
	} else {
		most = a.op("most", "ReduceMax", []*onnx.Value{scores, last}, keep)
	}
	var sink *onnx.Value
	if s.has(AttentionSink) {
		sink = a.call("sink_column", "Unsqueeze", a.in[AttentionSink], a.integers("behind_heads", 1, 2))
		most = a.call("most_or_sink", "Max", most, sink)
	}
	none := a.op("sees_none", "IsInf", []*onnx.Value{most}, onnx.IntAttr("detect_positive", 0))
	most = a.call("most_seen", "Where", none, a.number("zero", 0), most)
	e := a.call("e", "Exp", a.call("below_most", "Sub", scores, most))
	sum := a.op("sum", "ReduceSum", []*onnx.Value{e, last}, keep)
	if sink != nil {
		sum = a.call("sum_and_sink", "Add", sum, a.call("e_sink", "Exp", a.call("sink_below", "Sub", sink, most)))
	}
	p := a.call("p", "Div", e, a.call("divisor", "Where", none, a.number("one", 1), sum))
	if Read[Attention](s.Attributes).Empty != emptyMean {
		return p
	}
	length := a.longest
	if exists != nil {
		length = a.perSequence("mean_over", a.length)
	}
	mean := a.call("mean", "Reciprocal", a.float32("length_32", length))
	if exists != nil {
		mean = a.call("mean_of_existing", "Where", exists, mean, a.number("nothing", 0))
	}
	return a.call("p_or_mean", "Where", none, mean, p)
}
