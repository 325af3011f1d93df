package attention

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attentionBody computes scores [B, H, S, L]. In the two products, the heads that share keys have a separate dimension,
// so that keys and values are broadcast instead of repeated.
func attentionBody(b *op.Body, s op.Site) []*onnx.Value {
	attrs := op.Read[Attention](s.Attributes)
	a := &attentionBuilder{Body: b, axis: 2}
	if attrs.HeadOrder == headCyclic {
		a.axis = 1
	}
	q := a.byHeads("q_heads", b.In[AttentionQ], attrs.QLayout)
	k := a.byHeads("k_heads", b.In[AttentionK], attrs.KLayout)
	v := a.byHeads("v_heads", b.In[AttentionV], attrs.VLayout)
	a.keys = a.Size("keys", k, 2)
	a.queries = a.Size("queries", q, 2)
	presentKey, presentValue := k, v
	switch {
	case s.Has(AttentionPastLength):
		a.length = b.Call("length", "Add", b.In[AttentionPastLength], a.keys)
		at := a.rows()
		presentKey = a.overwritten("present_key", b.In[AttentionPastKey], k, at)
		presentValue = a.overwritten("present_value", b.In[AttentionPastValue], v, at)
		a.longest = b.Call("longest", "Unsqueeze", a.greatest("longest_number", a.length), b.Integers("front", 0))
	case s.Has(AttentionPastKey):
		presentKey = a.Joined("present_key", 2, b.In[AttentionPastKey], k)
		presentValue = a.Joined("present_value", 2, b.In[AttentionPastValue], v)
	}
	allKeys, allValues := b.Float32("keys_32", presentKey), b.Float32("values_32", presentValue)
	if a.longest == nil {
		a.longest = a.Size("longest", allKeys, 2)
	} else {
		allKeys = a.first("keys_used", allKeys, a.longest, 2)
		allValues = a.first("values_used", allValues, a.longest, 2)
	}
	heads, keyHeads := a.Size("heads", q, 1), a.Size("key_heads", presentKey, 1)
	a.split(heads, keyHeads)
	scaled := b.Call("scaled", "Mul", b.Float32("q_32", q), b.Attribute("scale"))
	scores := a.product("scores", scaled, b.Op("keys_transposed", "Transpose", []*onnx.Value{allKeys},
		onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	if attrs.Softcap > 0 {
		cap := b.Attribute("softcap")
		scores = b.Call("capped", "Mul", b.Call("tanh", "Tanh", b.Call("uncapped", "Div", scores, cap)), cap)
	}
	if s.Has(AttentionBias) {
		scores = b.Call("biased", "Add", scores, b.In[AttentionBias])
	}
	exists, seen := a.masks(s)
	lowest := b.Number("lowest", float32(math.Inf(-1)))
	if seen != nil {
		scores = b.Call("masked", "Where", seen, scores, lowest)
	}
	if exists != nil { // rows past the end may be NaN, and 0 * NaN is not 0
		column := b.Call("exists_column", "Unsqueeze", b.Call("exists_row", "Squeeze", exists, b.Integers("row", 2)),
			b.Integers("last", -1))
		allValues = b.Call("values", "Where", column, allValues, b.Number("zero", 0))
	}
	p := a.softmax(s, scores, exists)
	y := a.product("attended", p, allValues)
	if attrs.YLayout == layoutBSNH {
		y = a.swapped("attended_rows", y)
	}
	return []*onnx.Value{b.Round("Y", y, AttentionQ), presentKey, presentValue}
}

// attentionBuilder builds the definition of Attention. Sizes are vectors of one int64.
type attentionBuilder struct {
	*op.Body
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
	return a.Op(name, "Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// first takes the first n elements of v along an axis.
func (a *attentionBuilder) first(name string, v, n *onnx.Value, axis int64) *onnx.Value {
	return a.Call(name, "Slice", v, a.Integers("start", 0), n, a.Integers("axis", axis))
}

// greatest returns the greatest element of a vector of integers.
func (a *attentionBuilder) greatest(name string, v *onnx.Value) *onnx.Value {
	return a.Op(name, "ReduceMax", []*onnx.Value{v}, onnx.IntAttr("keepdims", 0))
}

// numbers returns 0, 1, ..., n-1.
func (a *attentionBuilder) numbers(name string, n *onnx.Value) *onnx.Value {
	zero, one := a.Constant("zero", onnx.IntAttr("value_int", 0)), a.Constant("one", onnx.IntAttr("value_int", 1))
	return a.Call(name, "Range", zero, a.Call(name+"_end", "Squeeze", n, a.Integers("front", 0)), one)
}

// perSequence reshapes a vector with one number for each sequence, or one for all, to [B, 1, 1, 1].
func (a *attentionBuilder) perSequence(name string, v *onnx.Value) *onnx.Value {
	return a.Call(name, "Unsqueeze", v, a.Integers("behind", 1, 2, 3))
}

// rows returns the source of each row of the updated buffers, as an index into [buffer, new rows]: [B, 1, M, 1].
func (a *attentionBuilder) rows() *onnx.Value {
	room := a.Size("room", a.In[AttentionPastKey], 2)
	all := a.Call("row", "Unsqueeze", a.numbers("row_numbers", room), a.Integers("last", -1))
	past := a.perSequence("past_length_column", a.In[AttentionPastLength])
	isNew := a.Call("is_new", "And", a.Call("is_behind", "GreaterOrEqual", all, past),
		a.Call("is_before", "Less", all, a.perSequence("length_column", a.length)))
	moved := a.Call("row_of_new", "Add", a.Call("row_behind", "Sub", all, past), room)
	return a.Call("row_taken", "Where", isNew, moved, all)
}

// overwritten returns the buffer past with the rows of v written at their places.
func (a *attentionBuilder) overwritten(name string, past, v, at *onnx.Value) *onnx.Value {
	index := a.Call(name+"_rows", "Expand", at, a.Call(name+"_shape", "Shape", past))
	return a.Op(name, "GatherElements", []*onnx.Value{a.Joined(name+"_and_new", 2, past, v), index},
		onnx.IntAttr("axis", 2))
}

// split makes the shapes with heads in one and in two dimensions. A 0 in them copies a dimension, which may then be 0.
func (a *attentionBuilder) split(heads, keyHeads *onnx.Value) {
	group := a.Call("group", "Div", heads, keyHeads)
	one, two := keyHeads, group
	if a.axis == 1 {
		one, two = group, keyHeads
	}
	copied, last := a.Integers("copied", 0), a.Integers("copied_last", 0, 0)
	a.parted = a.Joined("parted", 0, copied, one, two, last)
	a.unified = a.Joined("unified", 0, copied, heads, a.Integers("whole", 1), last)
}

// product multiplies the matrices of v, with H heads, by the matrices of w, with Hk heads.
func (a *attentionBuilder) product(name string, v, w *onnx.Value) *onnx.Value {
	between := a.Integers("between", 2)
	v = a.Call(name+"_parted", "Reshape", a.Call(name+"_left", "Unsqueeze", v, between), a.parted)
	y := a.Call(name+"_product", "MatMul", v, a.Call(name+"_right", "Unsqueeze", w, a.Integers("shared", a.axis)))
	return a.Call(name, "Squeeze", a.Call(name+"_unified", "Reshape", y, a.unified), between)
}

// masks returns which keys exist, [B, 1, 1, L], and which keys a query sees. Each is nil if it is all keys.
func (a *attentionBuilder) masks(s op.Site) (exists, seen *onnx.Value) {
	attrs := op.Read[Attention](s.Attributes)
	and := func(name string, v, w *onnx.Value) *onnx.Value {
		if v == nil {
			return w
		}
		return a.Call(name, "And", v, w)
	}
	key := a.numbers("key", a.longest)
	length := a.longest
	if a.length != nil {
		length = a.perSequence("key_end", a.length)
		exists = a.Call("exists", "Less", key, length)
		seen = exists
	}
	causal, window := attrs.Causal, attrs.Window > 0
	if causal || window {
		query := a.Call("query", "Unsqueeze", a.numbers("query_number", a.queries), a.Integers("last", -1))
		at := a.Call("query_key", "Add", query, a.Call("query_offset", "Sub", length, a.queries))
		if causal {
			seen = and("seen_causal", seen, a.Call("not_later", "LessOrEqual", key, at))
		}
		if window {
			before := a.Call("window_begin", "Sub", at, a.IntAttribute("window"))
			seen = and("seen_window", seen, a.Call("not_too_early", "Greater", key, before))
		}
	}
	if s.Has(AttentionKeyValid) {
		used := a.first("key_valid_used", a.In[AttentionKeyValid], a.longest, 1)
		if causal || window {
			// A mask of one key would be broadcast to all keys. The kernels refuse it, and nodes that count positions
			// by its length mean something else. So this Reshape fails.
			used = a.Call("key_valid_of_all", "Reshape", used, a.Joined("key_valid_dims", 0, a.Integers("copied", 0),
				a.longest))
		}
		valid := a.Op("key_valid_bool", "Cast", []*onnx.Value{used}, onnx.IntAttr("to", int64(onnx.Bool)))
		seen = and("seen_valid", seen, a.Call("valid", "Unsqueeze", valid, a.Integers("heads_and_queries", 1, 2)))
	}
	return exists, seen
}

// softmax returns the probabilities of scores. A score of minus infinity counts as absent.
func (a *attentionBuilder) softmax(s op.Site, scores, exists *onnx.Value) *onnx.Value {
	last, keep := a.Integers("last", -1), onnx.IntAttr("keepdims", 1)
	var most *onnx.Value
	if s.Opset < op.ReduceAxesOpset {
		most = a.Op("most", "ReduceMax", []*onnx.Value{scores}, onnx.IntsAttr("axes", []int64{-1}), keep)
	} else {
		most = a.Op("most", "ReduceMax", []*onnx.Value{scores, last}, keep)
	}
	var sink *onnx.Value
	if s.Has(AttentionSink) {
		sink = a.Call("sink_column", "Unsqueeze", a.In[AttentionSink], a.Integers("behind_heads", 1, 2))
		most = a.Call("most_or_sink", "Max", most, sink)
	}
	none := a.Op("sees_none", "IsInf", []*onnx.Value{most}, onnx.IntAttr("detect_positive", 0))
	most = a.Call("most_seen", "Where", none, a.Number("zero", 0), most)
	e := a.Call("e", "Exp", a.Call("below_most", "Sub", scores, most))
	sum := a.Op("sum", "ReduceSum", []*onnx.Value{e, last}, keep)
	if sink != nil {
		sum = a.Call("sum_and_sink", "Add", sum, a.Call("e_sink", "Exp", a.Call("sink_below", "Sub", sink, most)))
	}
	p := a.Call("p", "Div", e, a.Call("divisor", "Where", none, a.Number("one", 1), sum))
	if op.Read[Attention](s.Attributes).Empty != emptyMean {
		return p
	}
	length := a.longest
	if exists != nil {
		length = a.perSequence("mean_over", a.length)
	}
	mean := a.Call("mean", "Reciprocal", a.Float32("length_32", length))
	if exists != nil {
		mean = a.Call("mean_of_existing", "Where", exists, mean, a.Number("nothing", 0))
	}
	return a.Call("p_or_mean", "Where", none, mean, p)
}
