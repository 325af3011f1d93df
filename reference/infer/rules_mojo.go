package infer

import "github.com/mojo-patch/mojo-patch/onnx"

// mojoRules: the fused ops of this toolkit.
var mojoRules = map[string]rule{
	"RMSNorm": func(c *call) { c.set(0, c.normType(1), c.shape(0)) },
	"AddRMSNorm": func(c *call) {
		s := c.same(c.shape(0), c.shape(1))
		c.set(0, c.normType(2), s)
		c.set(1, c.dtype(0), s)
	},
	"GLU":             func(c *call) { c.set(0, c.firstType(0), c.same(c.shape(0), c.shape(1))) },
	"RotaryEmbedding": unary,
}

// normType gives the type of a norm's output: that of the scale when it is multiplied after the cast, else that of X.
func (c *call) normType(scale int) onnx.DataType {
	if c.attrInt("scale_after_cast", 0) != 0 {
		return c.dtype(scale)
	}
	return c.dtype(0)
}

// same gives the shape that a and b, which ought to be equal, have.
func (c *call) same(a, b []int64) []int64 {
	switch {
	case a == nil:
		return b
	case b == nil || sameSlice(a, b):
		return a
	case len(a) != len(b):
		return nil
	}
	out := a
	for i, d := range b {
		out = with(out, i, c.must(out[i], d))
	}
	return out
}
