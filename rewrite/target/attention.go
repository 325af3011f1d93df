package target

import (
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attentionOpset is the opset that introduced Attention.
const attentionOpset = 23

// standardAttention writes Attention, which returns zeros for a query that can attend to no key.
func standardAttention(c *Call) error {
	a := c.asAttention()
	for _, lack := range []struct {
		is   bool
		what string
	}{
		{c.Input(fused.AttentionSink) != nil, "Attention has no sinks"},
		{c.Input(fused.AttentionPastLength) != nil, "Attention does not write into its cache"},
		{a.Window > 0, "Attention has no windows, and the mask is not added to the scores"},
		{a.Empty == "mean", "Attention does not return the mean of the values for a query that sees no key, and the " +
			"mask is not added to the scores"},
		{a.HeadOrder == "cyclic", "Attention needs adjacent heads to share keys"},
	} {
		if lack.is {
			return errors.New(lack.what)
		}
	}
	h := c.attentionHeads()
	// Without a cache, Attention aligns the first query with the first key, and the fused op the last query with the
	// last key.
	apart := a.Causal && c.Input(fused.AttentionPastKey) == nil && !c.sameLength()
	inputs := []*onnx.Value{h.in(fused.AttentionQ, a.QLayout), h.in(fused.AttentionK, a.KLayout),
		h.in(fused.AttentionV, a.VLayout), c.attentionMask(apart), c.Input(fused.AttentionPastKey),
		c.Input(fused.AttentionPastValue)}
	outputs := 3
	if inputs[4] == nil && c.Node.OutputValue(1) == nil && c.Node.OutputValue(2) == nil {
		inputs, outputs = inputs[:4], 1
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	attrs := append([]*onnx.Attribute{onnx.FloatAttr("scale", a.Scale),
		onnx.BoolAttr("is_causal", a.Causal && !apart)}, h.attrs...)
	if limit := a.Softcap; limit > 0 {
		attrs = append(attrs, onnx.FloatAttr("softcap", limit))
	}
	made := c.Add("", "Attention", outputs, inputs, attrs...)
	c.Output(0, h.out(made[0]))
	for i, v := range made[1:] {
		c.Output(i+1, v)
	}
	return nil
}

// least holds the lowest and second-lowest number of each type.
var least = map[onnx.DataType][2]float32{
	onnx.Float:    {-math.MaxFloat32, math.Nextafter32(-math.MaxFloat32, 0)},
	onnx.Float16:  {-0x1.FFCp15, -0x1.FF8p15},
	onnx.BFloat16: {-0x1.FEp127, -0x1.FCp127},
}

// finite keeps onnxruntime from treating the lowest number of type t in a mask as minus infinity. A query that can
// attend to no key would get zeros instead of a mean.
func (c *Call) finite(mask *onnx.Value, t onnx.DataType) *onnx.Value {
	numbers := least[t]
	hidden := c.Op1("Equal", []*onnx.Value{mask, c.Number(numbers[0], onnx.Float)})
	return c.Op1("Where", []*onnx.Value{hidden, c.Number(numbers[1], onnx.Float), mask})
}

// attentionMask returns the mask of Attention, or nil if there is none: the valid keys (if causal is set, only those
// that are not later), the bias added to the scores, or both. onnxruntime broadcasts a mask along the batch and the
// heads, but not along queries or keys.
func (c *Call) attentionMask(causal bool) *onnx.Value {
	var seen *onnx.Value // the keys visible to each query
	queries, keys := false, true
	if valid := c.Input(fused.AttentionKeyValid); valid != nil {
		if c.asAttention().Causal { // a mask of one key would be broadcast to all, which the fused op refuses
			dims := c.Op1("Concat", []*onnx.Value{c.Integers(0), c.keyCount()}, onnx.IntAttr("axis", 0))
			valid = c.Op1("Reshape", []*onnx.Value{valid, dims})
		}
		exists := c.Op1("Cast", []*onnx.Value{valid}, onnx.IntAttr("to", int64(onnx.Bool)))
		seen = c.Op1("Unsqueeze", []*onnx.Value{exists, c.Integers(1, 2)})
	}
	if causal {
		earlier := c.earlierKeys()
		if queries = true; seen == nil {
			seen = earlier
		} else {
			seen = c.Op1("And", []*onnx.Value{seen, earlier})
		}
	}
	mask := seen
	if bias := c.Input(fused.AttentionBias); bias != nil {
		t, dims := c.Type(fused.AttentionQ), c.Dims(fused.AttentionBias)
		rank := len(dims)
		mask = c.Cast(c.finite(bias, t), onnx.Float, t)
		if seen != nil {
			mask = c.Op1("Where", []*onnx.Value{seen, mask, c.Number(float32(math.Inf(-1)), t)})
		} else {
			keys = rank > 0 && dims[rank-1] != 1
		}
		queries = queries || rank > 1 && c.sameDim(fused.AttentionBias, rank-2, fused.AttentionQ,
			lengthAxis(c.asAttention().QLayout))
	}
	if mask == nil || queries && keys {
		return mask
	}
	shape := []*onnx.Value{c.queryCount(), c.Integers(1)}
	if !keys {
		shape[1] = c.keyCount()
	}
	return c.Op1("Expand", []*onnx.Value{mask, c.Op1("Concat", shape, onnx.IntAttr("axis", 0))})
}

// earlierKeys returns a [queries, keys] mask of the keys visible to each query if the last key belongs to the last
// query.
func (c *Call) earlierKeys() *onnx.Value {
	queries, keys := c.queryCount(), c.keyCount()
	yes, _ := onnx.NewTensor("", onnx.Bool, []int64{1}, []byte{1})
	all := c.Op1("Expand", []*onnx.Value{c.Constant(yes),
		c.Op1("Concat", []*onnx.Value{queries, keys}, onnx.IntAttr("axis", 0))})
	more := c.Op1("Squeeze", []*onnx.Value{c.Op1("Sub", []*onnx.Value{keys, queries})})
	return c.Op1("Trilu", []*onnx.Value{all, more}, onnx.IntAttr("upper", 0))
}

// lengthAxis returns the axis of the positions.
func lengthAxis(layout string) int {
	if layout == "bsnh" {
		return 1
	}
	return 2
}

// sameLength reports whether there are as many keys as queries, whatever the sizes.
func (c *Call) sameLength() bool {
	a := c.asAttention()
	return c.sameDim(fused.AttentionQ, lengthAxis(a.QLayout), fused.AttentionK, lengthAxis(a.KLayout))
}

// queryCount returns the number of queries as a vector with one element.
func (c *Call) queryCount() *onnx.Value {
	return c.size(fused.AttentionQ, lengthAxis(c.asAttention().QLayout))
}

// keyCount returns the number of keys, including those of the cache, as a vector with one element.
func (c *Call) keyCount() *onnx.Value {
	n := c.size(fused.AttentionK, lengthAxis(c.asAttention().KLayout))
	if c.Input(fused.AttentionPastKey) != nil {
		n = c.Op1("Add", []*onnx.Value{n, c.size(fused.AttentionPastKey, 2)})
	}
	return n
}

// attentionHeads describes the layout of the heads in Attention.
type attentionHeads struct {
	c *Call
	// packed: heads are in the last dimension, after the positions, and attrs has their numbers. Otherwise they precede
	// the positions.
	packed bool
	attrs  []*onnx.Attribute
}

// attentionHeads packs the heads if they follow the positions in all layouts and their numbers are known.
func (c *Call) attentionHeads() attentionHeads {
	a := c.asAttention()
	h := attentionHeads{c: c, packed: a.QLayout == "bsnh" && a.KLayout == "bsnh" && a.VLayout == "bsnh" &&
		a.YLayout == "bsnh"}
	for i, attr := range []string{"q_num_heads", "kv_num_heads"} {
		if dims := c.Dims(i); len(dims) != 4 || dims[2] < 1 {
			h.packed = false
		} else {
			h.attrs = append(h.attrs, onnx.IntAttr(attr, dims[2]))
		}
	}
	if !h.packed {
		h.attrs = nil
	}
	return h
}

// in converts an input of the fused op to the layout of Attention.
func (h attentionHeads) in(i int, layout string) *onnx.Value {
	if h.packed {
		return h.c.Op1("Reshape", []*onnx.Value{h.c.Input(i), h.c.Integers(0, 0, -1)})
	}
	return h.c.byHeads(i, layout)
}

// out converts the result to the layout of the fused op.
func (h attentionHeads) out(v *onnx.Value) *onnx.Value {
	c := h.c
	switch {
	case h.packed:
		return c.Op1("Reshape", []*onnx.Value{v, c.Integers(0, 0, c.Dims(fused.AttentionQ)[2], -1)})
	case c.asAttention().YLayout == "bsnh":
		return c.swapHeads(v)
	}
	return v
}

// swapHeads swaps heads and positions.
func (c *Call) swapHeads(v *onnx.Value) *onnx.Value {
	return c.Op1("Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// flashBlock returns the fewest tokens of a block that onnxruntime's FlashAttention reads in place. Its other kernels
// for prompts have no sinks.
func flashBlock(width int64) int64 {
	switch {
	case width <= 64:
		return 256
	case width <= 128:
		return 128
	}
	return 64
}

// ortPagedAttention writes com.microsoft's PagedAttention. It takes 16-bit types, and onnxruntime has kernels for them
// only on CUDA, so the model then runs only there. Sinks are rounded to the type: the caller checks that this keeps
// them.
func ortPagedAttention(c *Call) error {
	a := fused.Read[fused.PagedAttention](c.Site.Attributes)
	t := c.Type(fused.PagedAttentionQ)
	q, pool, values := c.Dims(fused.PagedAttentionQ), c.Dims(fused.PagedAttentionKeyCache),
		c.Dims(fused.PagedAttentionValueCache)
	sink := c.Input(fused.PagedAttentionSink)
	switch {
	case t != onnx.Float16 && t != onnx.BFloat16:
		return fmt.Errorf("PagedAttention takes float16 and bfloat16, not %s", t)
	case !a.Causal:
		return errors.New("PagedAttention is written only for attention to earlier keys")
	case a.HeadOrder == "cyclic":
		return errors.New("PagedAttention needs adjacent heads to share keys")
	case a.Scale == 0:
		return errors.New("PagedAttention reads a scale of 0 as its default")
	case len(q) != 3 || len(pool) != 4 || len(values) != 4 || q[1] < 1 || q[2] < 1 || pool[2] < 1:
		return errors.New("PagedAttention: the number or the width of the heads is unknown")
	case q[2]%8 != 0:
		return fmt.Errorf("PagedAttention takes heads whose width is a multiple of 8, not %d", q[2])
	case values[3] != q[2]:
		return fmt.Errorf("PagedAttention takes keys and values of one width, not %d and %d", q[2], values[3])
	case pool[1] < 16 || pool[1]&(pool[1]-1) != 0:
		return fmt.Errorf("PagedAttention takes blocks of 16, 32, 64, … tokens, not %d (--cache paged=N)", pool[1])
	case sink != nil && pool[1] < flashBlock(q[2]):
		return fmt.Errorf("PagedAttention with sinks of heads of width %d takes blocks of at least %d tokens, not %d "+
			"(--cache paged=N)", q[2], flashBlock(q[2]), pool[1])
	}
	rows := func(v *onnx.Value, width ...int64) *onnx.Value {
		return c.Op1("Reshape", []*onnx.Value{v, c.Integers(append([]int64{0}, width...)...)})
	}
	inputs := []*onnx.Value{rows(c.Input(fused.PagedAttentionQ), q[1]*q[2]),
		rows(c.Input(fused.PagedAttentionK), pool[2]*q[2]), rows(c.Input(fused.PagedAttentionV), pool[2]*q[2])}
	for i := fused.PagedAttentionKeyCache; i <= fused.PagedAttentionBlockTable; i++ {
		inputs = append(inputs, c.Input(i))
	}
	inputs = append(inputs, nil, nil, c.Input(fused.PagedAttentionSlotMapping)) // after the tables of a rotation
	if sink != nil {
		inputs = append(inputs, c.Cast(sink, onnx.Float, t))
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	attrs := []*onnx.Attribute{onnx.IntAttr("num_heads", q[1]), onnx.IntAttr("kv_num_heads", pool[2]),
		onnx.FloatAttr("scale", a.Scale)}
	if a.Window > 0 {
		attrs = append(attrs, onnx.IntAttr("local_window_size", a.Window))
	}
	if a.Softcap > 0 {
		attrs = append(attrs, onnx.FloatAttr("softcap", a.Softcap))
	}
	out := c.Add(onnx.Microsoft, "PagedAttention", 3, inputs, attrs...)
	c.Output(0, rows(out[0], q[1], q[2]))
	c.Output(1, out[1])
	c.Output(2, out[2])
	return nil
}
