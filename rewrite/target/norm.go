package target

import "github.com/mojo-patch/mojo-patch/onnx"

// norm writes an RMS norm of x with a scale of the same type.
type norm func(c *Call, x, scale *onnx.Value) *onnx.Value

// normed writes the norm of x, of type t, whose scale is input s. Where their types differ both are cast to float32, in
// which the fused op computes, and the result to its type.
func (c *Call) normed(write norm, x *onnx.Value, t onnx.DataType, s int) *onnx.Value {
	result := t
	if c.Int("scale_after_cast") != 0 {
		result = c.Type(s)
	}
	if c.Type(s) == t {
		return write(c, x, c.Input(s))
	}
	y := write(c, c.Cast(x, t, onnx.Float), c.Cast(c.Input(s), c.Type(s), onnx.Float))
	return c.Cast(y, onnx.Float, result)
}

func (c *Call) writeNorm(write norm) {
	c.Output(0, c.normed(write, c.Input(0), c.Type(0), 1))
}

func (c *Call) writeAddNorm(write norm) {
	sum := c.Op1("Add", []*onnx.Value{c.Input(0), c.Input(1)})
	c.Output(1, sum)
	c.Output(0, c.normed(write, sum, c.Type(0), 2))
}

// normAttrs are the attributes that the norms of the standard and of onnxruntime have in common.
func (c *Call) normAttrs() []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", c.Int("axis")), onnx.FloatAttr("epsilon", c.Float("epsilon")),
		onnx.IntAttr("stash_type", int64(onnx.Float))}
}
