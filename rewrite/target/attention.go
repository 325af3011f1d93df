package target

import (
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attentionOpset is the version of the standard that has Attention.
const attentionOpset = 23

// standardAttention writes Attention, which gives zeros to a query that sees no key.
func standardAttention(c *Call) error {
	if c.Site.Opset < attentionOpset {
		return fmt.Errorf("Attention is an op of opset %d, the model has %d", attentionOpset, c.Site.Opset)
	}
	valid, bias := c.Input(fused.AttentionKeyValid), c.Input(fused.AttentionBias)
	for _, lack := range []struct {
		is   bool
		what string
	}{
		{c.Input(fused.AttentionSink) != nil, "Attention has no sinks"},
		{c.Input(fused.AttentionPastLength) != nil, "Attention does not write into its cache"},
		{c.Int("window") > 0, "Attention has no windows, and the mask is not added to the scores"},
		{c.String("empty") == "mean", "Attention gives no mean of the values to a query that sees no key, and the " +
			"mask is not added to the scores"},
		{c.String("head_order") == "cyclic", "heads of Attention that share keys stand in a row"},
		{valid != nil && bias != nil, "Attention has one mask"},
	} {
		if lack.is {
			return errors.New(lack.what)
		}
	}
	h := c.attentionHeads()
	inputs := []*onnx.Value{h.in(fused.AttentionQ, "q_layout"), h.in(fused.AttentionK, "k_layout"),
		h.in(fused.AttentionV, "v_layout"), nil, c.Input(fused.AttentionPastKey), c.Input(fused.AttentionPastValue)}
	switch {
	case valid != nil:
		exists := c.Op1("Cast", []*onnx.Value{valid}, onnx.IntAttr("to", int64(onnx.Bool)))
		inputs[3] = c.forQueries(c.Op1("Unsqueeze", []*onnx.Value{exists, c.Integers(1, 2)}))
	case bias != nil:
		t := c.Type(fused.AttentionQ)
		inputs[3] = c.Cast(c.finite(bias, t), onnx.Float, t)
	}
	outputs := 3
	if inputs[4] == nil && c.Node.OutputValue(1) == nil && c.Node.OutputValue(2) == nil {
		inputs, outputs = inputs[:4], 1
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	attrs := append([]*onnx.Attribute{onnx.FloatAttr("scale", c.Float("scale")),
		onnx.IntAttr("is_causal", c.Int("causal"))}, h.attrs...)
	if limit := c.Float("softcap"); limit > 0 {
		attrs = append(attrs, onnx.FloatAttr("softcap", limit))
	}
	made := c.Add("", "Attention", outputs, inputs, attrs...)
	c.Output(0, h.out(made[0]))
	for i, v := range made[1:] {
		c.Output(i+1, v)
	}
	return nil
}

// least are the least numbers of a type and the next ones.
var least = map[onnx.DataType][2]float32{
	onnx.Float:    {-math.MaxFloat32, math.Nextafter32(-math.MaxFloat32, 0)},
	onnx.Float16:  {-0x1.FFCp15, -0x1.FF8p15},
	onnx.BFloat16: {-0x1.FEp127, -0x1.FCp127},
}

// finite keeps onnxruntime from taking the least number of type t in a mask for minus infinity: a query that sees no
// key would get zeros in the place of a mean.
func (c *Call) finite(mask *onnx.Value, t onnx.DataType) *onnx.Value {
	numbers := least[t]
	hidden := c.Op1("Equal", []*onnx.Value{mask, c.Number(numbers[0], onnx.Float)})
	return c.Op1("Where", []*onnx.Value{hidden, c.Number(numbers[1], onnx.Float), mask})
}

// forQueries repeats a mask of [B, 1, 1, L] for each query: onnxruntime takes none that is broadcast there.
func (c *Call) forQueries(mask *onnx.Value) *onnx.Value {
	axis := int64(2)
	if c.String("q_layout") == "bsnh" {
		axis = 1
	}
	queries := c.Op1("Shape", []*onnx.Value{c.Input(fused.AttentionQ)}, onnx.IntAttr("start", axis),
		onnx.IntAttr("end", axis+1))
	if dims := c.Dims(fused.AttentionQ); len(dims) == 4 && dims[axis] >= 0 {
		queries = c.Integers(dims[axis])
	}
	shape := c.Op1("Concat", []*onnx.Value{c.Integers(1, 1), queries, c.Integers(1)}, onnx.IntAttr("axis", 0))
	return c.Op1("Expand", []*onnx.Value{mask, shape})
}

// attentionHeads is how Attention has the heads of its tensors.
type attentionHeads struct {
	c *Call
	// packed: in the last dimension, behind the positions, as attrs say; else before the positions.
	packed bool
	attrs  []*onnx.Attribute
}

// attentionHeads packs heads where all stand behind the positions, and their numbers are known.
func (c *Call) attentionHeads() attentionHeads {
	h := attentionHeads{c: c, packed: true}
	for _, layout := range []string{"q_layout", "k_layout", "v_layout", "y_layout"} {
		h.packed = h.packed && c.String(layout) == "bsnh"
	}
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

// in is an input of the fused op as Attention takes it.
func (h attentionHeads) in(i int, layout string) *onnx.Value {
	c, v := h.c, h.c.Input(i)
	switch {
	case h.packed:
		return c.Op1("Reshape", []*onnx.Value{v, c.Integers(0, 0, -1)})
	case c.String(layout) == "bsnh":
		return c.swapHeads(v)
	}
	return v
}

// out is the result as the fused op has it.
func (h attentionHeads) out(v *onnx.Value) *onnx.Value {
	c := h.c
	switch {
	case h.packed:
		return c.Op1("Reshape", []*onnx.Value{v, c.Integers(0, 0, c.Dims(fused.AttentionQ)[2], -1)})
	case c.String("y_layout") == "bsnh":
		return c.swapHeads(v)
	}
	return v
}

// swapHeads exchanges heads and positions.
func (c *Call) swapHeads(v *onnx.Value) *onnx.Value {
	return c.Op1("Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}
