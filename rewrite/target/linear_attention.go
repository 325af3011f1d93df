package target

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ortLinearAttention writes onnxruntime's LinearAttention, which takes the fused op's heads of queries and keys.
func ortLinearAttention(c *Call) error { return c.linearAttention(onnx.Microsoft) }

// standardLinearAttention writes LinearAttention of the standard (opset 27), whose keys have one head for each state.
func standardLinearAttention(c *Call) error {
	a := c.asLinearAttention()
	queries, keys, states := a.QHeads, a.KHeads, a.VHeads
	if keys != states || queries%states != 0 {
		return fmt.Errorf("LinearAttention needs one head of keys and one or more heads of queries for each state: "+
			"there are %d heads of queries, %d of keys and %d of values", queries, keys, states)
	}
	return c.linearAttention("")
}

// linearAttention writes LinearAttention of a domain. Its gates have the type of q, so all of it is float32.
func (c *Call) linearAttention(domain string) error {
	a, typ := c.asLinearAttention(), c.Type(fused.LinearAttentionQ)
	if a.Scale == 0 {
		return errors.New("LinearAttention reads a scale of 0 as its default")
	}
	inputs := slices.Clone(c.Node.Inputs)
	for i := range fused.LinearAttentionPast {
		inputs[i] = c.Cast(inputs[i], typ, onnx.Float)
	}
	if a.L2Norm {
		for i, heads := range []int64{a.QHeads, a.KHeads} {
			dims := c.Dims(i)
			if len(dims) != 3 || dims[2] < 0 {
				return errors.New("LinearAttention: the width of the heads is unknown")
			}
			inputs[i] = c.unit(inputs[i], heads, dims[2]/heads, a.Epsilon)
		}
	}
	rule := "linear"
	switch decay, beta := c.Input(fused.LinearAttentionDecay) != nil, c.Input(fused.LinearAttentionBeta) != nil; {
	case decay && beta:
		rule = "gated_delta"
	case decay:
		rule = "gated"
	case beta:
		rule = "delta"
	}
	out := c.Add(domain, "LinearAttention", 2, inputs, onnx.IntAttr("q_num_heads", a.QHeads),
		onnx.IntAttr("kv_num_heads", a.VHeads), onnx.FloatAttr("scale", a.Scale),
		onnx.StringAttr("update_rule", rule))
	c.Output(0, c.Cast(out[0], onnx.Float, typ))
	c.Output(1, out[1])
	return nil
}

// unit divides each head of v, width channels wide, by its length.
func (c *Call) unit(v *onnx.Value, heads, width int64, epsilon float32) *onnx.Value {
	rows := c.Op1("Reshape", []*onnx.Value{v, c.Integers(0, 0, heads, width)})
	squares := c.Op1("Mul", []*onnx.Value{rows, rows})
	sum := c.Op1("ReduceSum", []*onnx.Value{squares, c.Integers(-1)}, onnx.IntAttr("keepdims", 1))
	length := c.Op1("Sqrt", []*onnx.Value{c.Op1("Add", []*onnx.Value{sum, c.Number(epsilon, onnx.Float)})})
	return c.Op1("Reshape", []*onnx.Value{c.Op1("Div", []*onnx.Value{rows, length}), c.Integers(0, 0, heads*width)})
}

// ortCausalConv writes onnxruntime's CausalConvWithState.
func ortCausalConv(c *Call) error {
	if t := c.Type(fused.CausalConvX); t != onnx.Float {
		return fmt.Errorf("CausalConvWithState takes float32 on the CPU, not %s", t)
	}
	return c.causalConv(onnx.Microsoft)
}

// standardCausalConv writes CausalConvWithState of the standard (opset 27).
func standardCausalConv(c *Call) error { return c.causalConv("") }

// causalConv writes CausalConvWithState of a domain, which keeps as many tokens as the convolution reads.
func (c *Call) causalConv(domain string) error {
	if past, w := c.Dims(fused.CausalConvPast), c.Dims(fused.CausalConvWeight); c.Input(fused.CausalConvPast) != nil &&
		(len(past) != 3 || len(w) != 3 || w[2] < 0 || past[2] != w[2]-1) {
		return fmt.Errorf("CausalConvWithState keeps one token less than the width of weight: past is %s, weight is %s",
			shapeText(past), shapeText(w))
	}
	out := c.Add(domain, "CausalConvWithState", 2, slices.Clone(c.Node.Inputs),
		onnx.StringAttr("activation", c.asCausalConv().Activation))
	c.Output(0, out[0])
	c.Output(1, out[1])
	return nil
}

// writtenOutConv writes the kept tokens, the convolution and the activation with ops that every opset has.
func writtenOutConv(c *Call) error {
	x, w := c.Input(fused.CausalConvX), c.Dims(fused.CausalConvWeight)
	if len(w) != 3 || w[0] < 0 || w[2] < 0 {
		return errors.New("Conv: the shape of weight is unknown")
	}
	read := w[2] - 1
	end := func(v *onnx.Value, count int64) *onnx.Value { // the last numbers along time
		if count == 0 {
			return c.Op1("Slice", []*onnx.Value{v, c.Integers(0), c.Integers(0), c.Integers(2)})
		}
		return c.Op1("Slice", []*onnx.Value{v, c.Integers(-count), c.Integers(math.MaxInt64), c.Integers(2)})
	}
	inputs := []*onnx.Value{x, c.Input(fused.CausalConvWeight)}
	if bias := c.Input(fused.CausalConvBias); bias != nil {
		inputs = append(inputs, bias)
	}
	attrs := []*onnx.Attribute{onnx.IntAttr("group", w[0])}
	all, kept := x, read
	if past := c.Input(fused.CausalConvPast); past != nil {
		dims := c.Dims(fused.CausalConvPast)
		if len(dims) != 3 || dims[2] < 0 {
			return errors.New("Conv: the number of kept tokens is unknown")
		}
		kept = dims[2]
		all = c.Op1("Concat", []*onnx.Value{past, x}, onnx.IntAttr("axis", 2))
		if inputs[0] = all; kept > read {
			inputs[0] = c.Op1("Slice", []*onnx.Value{all, c.Integers(kept - read), c.Integers(math.MaxInt64),
				c.Integers(2)})
		}
	} else {
		attrs = append(attrs, onnx.IntsAttr("pads", []int64{read, 0}))
		all = c.Op1("Pad", []*onnx.Value{x, c.Integers(0, 0, read, 0, 0, 0)})
	}
	y := c.Op1("Conv", inputs, attrs...)
	if c.asCausalConv().Activation == "silu" {
		y = c.Op1("Mul", []*onnx.Value{y, c.Op1("Sigmoid", []*onnx.Value{y})})
	}
	c.Output(0, y)
	c.Output(1, end(all, kept))
	return nil
}
