package target

import "github.com/mojo-patch/mojo-patch/onnx"

// writeGLU writes GLU as the product of an activation, which activate writes, and up.
func (c *Call) writeGLU(activate func(gate *onnx.Value) *onnx.Value) {
	gate, up, t := c.Input(0), c.Input(1), c.Type(0)
	if limit := c.Float("limit"); limit > 0 {
		most := c.Number(limit, t)
		gate = c.Op1("Min", []*onnx.Value{gate, most})
		up = c.Op1("Max", []*onnx.Value{c.Op1("Min", []*onnx.Value{up, most}), c.Number(-limit, t)})
	}
	if offset := c.Float("up_offset"); offset != 0 {
		up = c.Op1("Add", []*onnx.Value{up, c.Number(offset, t)})
	}
	c.Output(0, c.Op1("Mul", []*onnx.Value{activate(gate), up}))
}
