package target

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// standard writes only ops of the ONNX standard, for any runtime that supports them.
var standard = &Target{
	Name:     "onnx",
	Summary:  "ops of the standard, opset 24: for any runtime",
	Opset:    24,
	Masks:    OtherMasks,
	OnCPU:    true,
	Standard: true,
	Rules: []Rule{
		{fused.RMSNormName, "RMSNormalization", func(c *Call) error { c.writeNorm(standardNorm); return nil }},
		{fused.AddRMSNormName, "Add, RMSNormalization",
			func(c *Call) error { c.writeAddNorm(standardNorm); return nil }},
		{fused.AddLayerNormName, "Add, LayerNormalization", (*Call).writeAddLayerNorm},
		{fused.BiasGELUName, "Add, Gelu", (*Call).writeBiasGELU},
		{fused.GLUName, "Swish, Mul", standardSwiGLU},
		{fused.GLUName, "Sigmoid, Mul", standardSigmoid},
		{fused.GLUName, "Gelu, Mul", standardGeGLU},
		{fused.RotaryEmbeddingName, "RotaryEmbedding", standardRotary},
		{fused.AttentionName, "Attention", standardAttention},
		{fused.LinearAttentionName, "LinearAttention", standardLinearAttention},
		{fused.CausalConvName, "CausalConvWithState", standardCausalConv},
		{fused.CausalConvName, "Concat, Conv", writtenOutConv},
		{fused.LinearName, "DequantizeLinear, MatMul", standardLinear},
		{fused.EmbeddingName, "Gather, DequantizeLinear", standardEmbedding},
	},
}

// standardNorm writes RMSNormalization (opset 23), which rounds to the type of X before it applies the scale.
func standardNorm(c *Call, x, scale *onnx.Value) *onnx.Value {
	return c.Op1("RMSNormalization", []*onnx.Value{x, scale}, c.normAttrs()...)
}

func standardSwiGLU(c *Call) error {
	if c.asGLU().Activation != "silu" {
		return errOther
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value {
		return c.Op1("Swish", []*onnx.Value{gate}, onnx.FloatAttr("alpha", c.asGLU().Alpha))
	})
	return nil
}

// standardSigmoid writes Swish as Sigmoid and Mul, because onnxruntime runs Swish only in models of opset 24.
func standardSigmoid(c *Call) error {
	if c.asGLU().Activation != "silu" {
		return errOther
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value { return c.activated(gate, c.Type(0)) })
	return nil
}

func standardGeGLU(c *Call) error {
	approximate := map[string]string{"gelu": "none", "gelu_tanh": "tanh"}[c.asGLU().Activation]
	if approximate == "" {
		return errOther
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value {
		return c.Op1("Gelu", []*onnx.Value{gate}, onnx.StringAttr("approximate", approximate))
	})
	return nil
}

// standardRotary writes RotaryEmbedding (opset 23) with tables for the whole batch and no position ids: onnxruntime
// does not accept tables for batch 1 without them.
func standardRotary(c *Call) error {
	r, err := c.rotation(func(int64) bool { return true })
	if err != nil {
		return errors.New("RotaryEmbedding: " + err.Error())
	}
	attrs := []*onnx.Attribute{onnx.BoolAttr("interleaved", r.interleaved)}
	if r.packed {
		if r.heads < 0 {
			return errors.New("RotaryEmbedding: the number of heads is unknown")
		}
		attrs = append(attrs, onnx.IntAttr("num_heads", r.heads))
	}
	if r.partial != 0 {
		attrs = append(attrs, onnx.IntAttr("rotary_embedding_dim", r.partial))
	}
	r.expand()
	r.finish(c.Op1("RotaryEmbedding", []*onnx.Value{r.x, r.tables.cos, r.tables.sin}, attrs...))
	return nil
}
