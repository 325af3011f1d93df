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
	"NormRotary":      func(c *call) { c.set(0, c.normType(1), c.shape(0)) },
	"TopKRouter":      (*call).topKRouter,
	"MoE":             (*call).mixture,
}

// topKRouter: two outputs of the shape of the logits, with top_k in the place of the experts.
func (c *call) topKRouter() {
	s := c.shape(0)
	if len(s) > 0 {
		k := c.attrInt("top_k", -1)
		s = with(s, len(s)-1, max(k, -1))
	}
	c.set(0, onnx.Float, s)
	c.set(1, onnx.Int64, s)
}

// mixture: the output is like X; the inner dimensions of the weights ought to fit it.
func (c *call) mixture() {
	x := c.shape(0)
	if w, ids := c.shape(1), c.shape(2); len(w) > 0 && len(ids) > 0 {
		c.must(w[len(w)-1], ids[len(ids)-1])
	}
	hidden := func(v int, layout string, outIn int) {
		w := c.shape(v)
		if len(w) != 3 || len(x) == 0 {
			return
		}
		at := outIn
		if c.attrString(layout, "out_in") == "in_out" {
			at = 3 - outIn
		}
		x = with(x, len(x)-1, c.must(x[len(x)-1], w[at]))
	}
	hidden(3, "gate_up_layout", 2)
	hidden(4, "down_layout", 1)
	c.set(0, c.dtype(0), x)
}

// normType returns the type of a norm's output: that of the scale when it is multiplied after the cast, else that of X.
func (c *call) normType(scale int) onnx.DataType {
	if c.attrInt("scale_after_cast", 0) != 0 {
		return c.dtype(scale)
	}
	return c.dtype(0)
}

// same returns the shape that a and b, which ought to be equal, have.
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
