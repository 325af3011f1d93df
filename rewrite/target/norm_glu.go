package target

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// norm writes an RMS norm of x; scale has the same type.
type norm func(c *Call, x, scale *onnx.Value) *onnx.Value

// normed writes the norm of x, of type t, with input s as scale. If their types differ, both are cast to float32, in
// which the fused op computes, and the result is cast back.
func (c *Call) normed(write norm, x *onnx.Value, t onnx.DataType, s int) *onnx.Value {
	result := t
	if c.asNorm().ScaleAfterCast {
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

// normAttrs returns the attributes that the norms of the standard and of onnxruntime share.
func (c *Call) normAttrs() []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", c.asNorm().Axis), onnx.FloatAttr("epsilon", c.asNorm().Epsilon),
		onnx.IntAttr("stash_type", int64(onnx.Float))}
}

// writeAddLayerNorm writes AddLayerNorm as sums and the standard's LayerNormalization.
func (c *Call) writeAddLayerNorm() error {
	x := c.Input(fused.AddLayerNormX)
	if b := c.Input(fused.AddLayerNormXBias); b != nil {
		x = c.Op1("Add", []*onnx.Value{x, b})
	}
	sum := c.Op1("Add", []*onnx.Value{x, c.Input(fused.AddLayerNormResidual)})
	c.Output(1, sum)
	c.Output(0, c.Op1("LayerNormalization",
		[]*onnx.Value{sum, c.Input(fused.AddLayerNormScale), c.Input(fused.AddLayerNormBias)},
		onnx.IntAttr("axis", -1),
		onnx.FloatAttr("epsilon", fused.Read[fused.AddLayerNorm](c.Site.Attributes).Epsilon)))
	return nil
}

// writeBiasGELU writes BiasGELU as a sum and its activation.
func (c *Call) writeBiasGELU() error {
	c.Output(0, c.activated(c.Op1("Add", []*onnx.Value{c.Input(0), c.Input(1)}), c.Type(0)))
	return nil
}

// writeGLU writes GLU as up times an activation, which activate writes.
func (c *Call) writeGLU(activate func(gate *onnx.Value) *onnx.Value) {
	c.Output(0, c.gated(c.Input(0), c.Input(1), c.Type(0), activate))
}

// gated writes an activation of gate times up, both of type t, with the clamps and the shift that the attributes
// demand.
func (c *Call) gated(gate, up *onnx.Value, t onnx.DataType, activate func(gate *onnx.Value) *onnx.Value) *onnx.Value {
	if limit := c.asGLU().Limit; limit > 0 {
		most := c.Number(limit, t)
		gate = c.Op1("Min", []*onnx.Value{gate, most})
		up = c.Op1("Max", []*onnx.Value{c.Op1("Min", []*onnx.Value{up, most}), c.Number(-limit, t)})
	}
	if offset := c.asGLU().UpOffset; offset != 0 {
		up = c.Op1("Add", []*onnx.Value{up, c.Number(offset, t)})
	}
	return c.Op1("Mul", []*onnx.Value{activate(gate), up})
}

// activated writes the activation of g with ops of opset 20.
func (c *Call) activated(g *onnx.Value, t onnx.DataType) *onnx.Value {
	switch c.asGLU().Activation {
	case "silu":
		z := g
		if alpha := c.asGLU().Alpha; alpha != 1 {
			z = c.Op1("Mul", []*onnx.Value{g, c.Number(alpha, t)})
		}
		return c.Op1("Mul", []*onnx.Value{g, c.Op1("Sigmoid", []*onnx.Value{z})})
	case "gelu":
		return c.Op1("Gelu", []*onnx.Value{g}, onnx.StringAttr("approximate", "none"))
	case "gelu_tanh":
		return c.Op1("Gelu", []*onnx.Value{g}, onnx.StringAttr("approximate", "tanh"))
	}
	r := c.Op1("Relu", []*onnx.Value{g})
	if c.asGLU().Activation == "relu2" {
		return c.Op1("Mul", []*onnx.Value{r, r})
	}
	return r
}
