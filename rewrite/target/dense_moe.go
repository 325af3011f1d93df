package target

import (
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// denseMoE writes MoE as products of all tokens with all experts, each times its gate, which is 0 if the expert was not
// chosen. It is for devices that can neither gather matrices by data nor branch. The result of an expert that was not
// chosen must be finite, because 0 times anything else is NaN.
func denseMoE(c *Call) error {
	hidden, experts := c.lastDim(fused.MoEX), int64(-1)
	if w := c.Dims(fused.MoEGateUp); len(w) == 3 {
		experts = w[0]
	}
	inner, err := c.moeInner()
	if err != nil {
		return err
	}
	if hidden < 0 || experts < 0 {
		return fmt.Errorf("products over all experts need a known number and width of experts: X is %s, gate_up is %s",
			shapeText(c.Dims(fused.MoEX)), shapeText(c.Dims(fused.MoEGateUp)))
	}
	t := c.Type(fused.MoEX) // type of the whole computation
	if c.Type(fused.MoEGateUp) != t {
		t = onnx.Float
	}
	gates, err := c.denseGates(experts, t)
	if err != nil {
		return err
	}
	rows := c.Cast(c.rows(fused.MoEX, hidden), c.Type(fused.MoEX), t)
	h := c.product(c.Op1("Unsqueeze", []*onnx.Value{rows, c.Integers(0)}), fused.MoEGateUp, fused.MoEGateUpBias,
		c.asMoE().GateUpLayout, t)
	// [experts, tokens, hidden]
	y := c.product(c.between(h, inner, t), fused.MoEDown, fused.MoEDownBias, c.asMoE().DownLayout, t)
	y = c.Op1("ReduceSum", []*onnx.Value{c.Op1("Mul", []*onnx.Value{y, gates}), c.Integers(0)},
		onnx.IntAttr("keepdims", 0))
	y = c.Cast(y, t, c.Type(fused.MoEX))
	if len(c.Dims(fused.MoEX)) != 2 {
		y = c.Op1("Reshape", []*onnx.Value{y, c.shape(fused.MoEX)})
	}
	c.Output(0, y)
	return nil
}

// moeInner returns the expert width for products of all experts, which require the shape of down.
func (c *Call) moeInner() (int64, error) {
	d := c.Dims(fused.MoEDown)
	if len(d) != 3 || d[1] < 0 || d[2] < 0 {
		return 0, fmt.Errorf("products over all experts need the shape of down, which is %s", shapeText(d))
	}
	return c.expertWidth(), nil
}

// expertWidth returns the inner width of the experts, or -1 if it is unknown.
func (c *Call) expertWidth() int64 {
	d := c.Dims(fused.MoEDown)
	switch {
	case len(d) != 3:
		return -1
	case c.asMoE().DownLayout == "in_out":
		return d[1]
	}
	return d[2]
}

// denseGates returns the weight of each expert for each token as [experts, tokens, 1]: 0 if the expert was not chosen,
// and the sum if it was chosen more than once. It avoids ScatterElements, because QNN does not support one that adds.
func (c *Call) denseGates(experts int64, t onnx.DataType) (*onnx.Value, error) {
	k := c.lastDim(fused.MoEIDs)
	if k < 0 {
		return nil, errors.New("products over all experts need a known number of chosen experts")
	}
	numbers := make([]int64, experts)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	last := c.Integers(-1)
	chosen := c.Op1("Equal", []*onnx.Value{c.Op1("Unsqueeze", []*onnx.Value{c.rows(fused.MoEIDs, k), last}),
		c.Integers(numbers...)})
	weights := c.Cast(c.rows(fused.MoEWeights, k), c.Type(fused.MoEWeights), t)
	// [tokens, k, experts]
	gates := c.Op1("Mul", []*onnx.Value{c.Cast(chosen, onnx.Bool, t), c.Op1("Unsqueeze", []*onnx.Value{weights, last})})
	gates = c.Op1("ReduceSum", []*onnx.Value{gates, c.Integers(1)}, onnx.IntAttr("keepdims", 0))
	gates = c.Op1("Transpose", []*onnx.Value{gates}, onnx.IntsAttr("perm", []int64{1, 0}))
	return c.Op1("Unsqueeze", []*onnx.Value{gates, last}), nil
}

// rows returns an input as a matrix whose rows have this width.
func (c *Call) rows(i int, width int64) *onnx.Value {
	if len(c.Dims(i)) == 2 {
		return c.Input(i)
	}
	return c.Op1("Reshape", []*onnx.Value{c.Input(i), c.Integers(-1, width)})
}

// product multiplies x by the experts' matrices in input w, in either layout, and adds their biases.
func (c *Call) product(x *onnx.Value, w, bias int, layout string, t onnx.DataType) *onnx.Value {
	m := c.Cast(c.Input(w), c.Type(w), t)
	if layout == "out_in" {
		m = c.Op1("Transpose", []*onnx.Value{m}, onnx.IntsAttr("perm", []int64{0, 2, 1}))
	}
	y := c.Op1("MatMul", []*onnx.Value{x, m})
	if b := c.Input(bias); b != nil {
		b = c.Cast(c.Op1("Unsqueeze", []*onnx.Value{b, c.Integers(1)}), c.Type(bias), t)
		y = c.Op1("Add", []*onnx.Value{y, b})
	}
	return y
}

// between computes the activation between the two products.
func (c *Call) between(h *onnx.Value, inner int64, t onnx.DataType) *onnx.Value {
	activate := func(g *onnx.Value) *onnx.Value { return c.activated(g, t) }
	switch c.asMoE().Packing {
	case "none":
		return activate(h)
	case "halves":
		parts := c.Add("", "Split", 2, []*onnx.Value{h, c.Integers(inner, inner)}, onnx.IntAttr("axis", -1))
		return c.gated(parts[0], parts[1], t, activate)
	}
	every := func(from int64) *onnx.Value {
		return c.Op1("Slice", []*onnx.Value{h, c.Integers(from), c.Integers(math.MaxInt64), c.Integers(-1),
			c.Integers(2)})
	}
	return c.gated(every(0), every(1), t, activate)
}
