package target

import "github.com/mojo-patch/mojo-patch/onnx"

// writeGLU writes GLU as the product of an activation, which activate writes, and up.
func (c *Call) writeGLU(activate func(gate *onnx.Value) *onnx.Value) {
	c.Output(0, c.gated(c.Input(0), c.Input(1), c.Type(0), activate))
}

// gated is an activation of the gate times up, both of type t, clamped and shifted where the attributes say so.
func (c *Call) gated(gate, up *onnx.Value, t onnx.DataType, activate func(gate *onnx.Value) *onnx.Value) *onnx.Value {
	if limit := c.Float("limit"); limit > 0 {
		most := c.Number(limit, t)
		gate = c.Op1("Min", []*onnx.Value{gate, most})
		up = c.Op1("Max", []*onnx.Value{c.Op1("Min", []*onnx.Value{up, most}), c.Number(-limit, t)})
	}
	if offset := c.Float("up_offset"); offset != 0 {
		up = c.Op1("Add", []*onnx.Value{up, c.Number(offset, t)})
	}
	return c.Op1("Mul", []*onnx.Value{activate(gate), up})
}

// activated is the activation of g in ops that opset 20 has.
func (c *Call) activated(g *onnx.Value, t onnx.DataType) *onnx.Value {
	switch c.String("activation") {
	case "silu":
		z := g
		if alpha := c.Float("alpha"); alpha != 1 {
			z = c.Op1("Mul", []*onnx.Value{g, c.Number(alpha, t)})
		}
		return c.Op1("Mul", []*onnx.Value{g, c.Op1("Sigmoid", []*onnx.Value{z})})
	case "gelu":
		return c.Op1("Gelu", []*onnx.Value{g}, onnx.StringAttr("approximate", "none"))
	case "gelu_tanh":
		return c.Op1("Gelu", []*onnx.Value{g}, onnx.StringAttr("approximate", "tanh"))
	}
	r := c.Op1("Relu", []*onnx.Value{g})
	if c.String("activation") == "relu2" {
		return c.Op1("Mul", []*onnx.Value{r, r})
	}
	return r
}
