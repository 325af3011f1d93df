package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ort writes the fused ops that onnxruntime itself has, in the types for which its CPU provider has kernels: one node
// without a kernel keeps the whole model from loading.
var ort = &Target{
	Name:     "ort",
	Summary:  "onnxruntime's own fused ops: for onnxruntime without a kernel library",
	Opset:    attentionOpset,
	Masks:    OtherMasks,
	Mixtures: true,
	OnCPU:    true,
	Rules: []Rule{
		{fused.RMSNormName, "SimplifiedLayerNormalization", func(c *Call) error { return c.ortNorm(1, c.writeNorm) }},
		{fused.AddRMSNormName, "SkipSimplifiedLayerNormalization", ortSkipRMSNorm},
		{fused.AddRMSNormName, "Add, SimplifiedLayerNormalization", func(c *Call) error {
			return c.ortNorm(2, c.writeAddNorm)
		}},
		{fused.GatedRMSNormName, "GatedRMSNorm", ortGatedRMSNorm},
		{fused.GatedRMSNormName, "SimplifiedLayerNormalization, QuickGelu, Mul", ortNormAndGate},
		{fused.AddLayerNormName, "SkipLayerNormalization", ortSkipLayerNorm},
		{fused.AddLayerNormName, "Add, LayerNormalization", (*Call).writeAddLayerNorm},
		{fused.BiasGELUName, "BiasGelu", ortBiasGELU("BiasGelu", "gelu")},
		{fused.BiasGELUName, "FastGelu", ortBiasGELU("FastGelu", "gelu_tanh")},
		{fused.BiasGELUName, "Add, QuickGelu", ortBiasQuickGELU},
		{fused.BiasGELUName, "Add, Gelu", (*Call).writeBiasGELU},
		{fused.GLUName, "QuickGelu, Mul", ortSwiGLU},
		{fused.GLUName, "Gelu, Mul", ortGeGLU("Gelu", "gelu")},
		{fused.GLUName, "FastGelu, Mul", ortGeGLU("FastGelu", "gelu_tanh")},
		{fused.RotaryEmbeddingName, "RotaryEmbedding", ortRotary},
		{fused.AttentionName, "Attention", ortAttention},
		{fused.PagedAttentionName, "PagedAttention", ortPagedAttention},
		{fused.LinearAttentionName, "LinearAttention", ortLinearAttention},
		{fused.CausalConvName, "CausalConvWithState", ortCausalConv},
		{fused.CausalConvName, "Concat, Conv", writtenOutConv},
		{fused.MoEName, "MoE", ortMoE},
		{fused.TopKRouterName, "MoE", ortRouter},
		{fused.QMoEName, "QMoE", ortQMoE},
		{fused.LinearName, "MatMulNBits", ortLinear},
		{fused.LinearName, "FusedMatMul", ortWideLinear},
		{fused.EmbeddingName, "Gather", ortWideEmbedding},
		{fused.EmbeddingName, "GatherBlockQuantized", ortEmbedding},
	},
}

// ortNorm writes SimplifiedLayerNormalization, which onnxruntime has in the standard's domain.
func ortNorm(c *Call, x, scale *onnx.Value) *onnx.Value {
	return c.Op1("SimplifiedLayerNormalization", []*onnx.Value{x, scale}, c.normAttrs()...)
}

// ortNorm writes a norm with input s as scale.
func (c *Call) ortNorm(s int, write func(norm)) error {
	if err := halfOr32("SimplifiedLayerNormalization", c.Type(0), c.Type(s)); err != nil {
		return err
	}
	write(ortNorm)
	return nil
}

// ortSkipRMSNorm writes SkipSimplifiedLayerNormalization, which adds and normalizes rows of two or three dimensions.
func ortSkipRMSNorm(c *Call) error {
	const op = "SkipSimplifiedLayerNormalization"
	if err := halfOr32(op, c.Type(0), c.Type(2)); err != nil {
		return err
	}
	if c.Type(0) != c.Type(2) && c.Type(0) != onnx.Float { // a scale can be cast to float32, the sum cannot
		return fmt.Errorf("%s takes X and scale of one type, not %s and %s", op, c.Type(0), c.Type(2))
	}
	if rank := len(c.Dims(0)); rank != 2 && rank != 3 || c.asNorm().Axis != -1 {
		return fmt.Errorf("%s normalizes the last of two or three axes, but X is %s and axis is "+
			"%d", op, shapeText(c.Dims(0)),
			c.asNorm().Axis)
	}
	y := c.Add(onnx.Microsoft, op, 1, []*onnx.Value{c.Input(0), c.Input(1), c.Cast(c.Input(2), c.Type(2), c.Type(0))},
		onnx.FloatAttr("epsilon", c.asNorm().Epsilon))[0]
	sum := c.output(y.Producer, 3) // after the mean and the deviation
	if c.asNorm().ScaleAfterCast {
		y = c.Cast(y, c.Type(0), c.Type(2))
	}
	c.Output(0, y)
	c.Output(1, sum)
	return nil
}

// ortGatedRMSNorm writes GatedRMSNorm, which gates the result and rounds it once. onnxruntime 1.29 has no kernel.
func ortGatedRMSNorm(c *Call) error {
	a := fused.Read[fused.GatedRMSNorm](c.Site.Attributes)
	t := c.Type(fused.GatedRMSNormX)
	if a.GateFirst || a.Groups != 1 || t != c.Type(fused.GatedRMSNormGate) || t != c.Type(fused.GatedRMSNormScale) ||
		a.ScaleAfterCast && t != onnx.Float {
		return errOther
	}
	if err := halfOr32("GatedRMSNorm", t); err != nil {
		return err
	}
	c.Output(0, c.Add(onnx.Microsoft, "GatedRMSNorm", 1, []*onnx.Value{c.Input(fused.GatedRMSNormX),
		c.Input(fused.GatedRMSNormScale), c.Input(fused.GatedRMSNormGate)}, onnx.FloatAttr("epsilon", a.Epsilon))[0])
	return nil
}

// ortNormAndGate writes the norm and the gate as separate ops, which does not round more than GatedRMSNorm in float32.
func ortNormAndGate(c *Call) error {
	a := fused.Read[fused.GatedRMSNorm](c.Site.Attributes)
	for _, i := range []int{fused.GatedRMSNormX, fused.GatedRMSNormGate, fused.GatedRMSNormScale} {
		if t := c.Type(i); t != onnx.Float {
			return fmt.Errorf("the gate of a norm is written for float32, not %s", t)
		}
	}
	if a.Groups != 1 {
		return fmt.Errorf("SimplifiedLayerNormalization has no groups of channels, and there are %d", a.Groups)
	}
	gate := c.Add(onnx.Microsoft, "QuickGelu", 1, []*onnx.Value{c.Input(fused.GatedRMSNormGate)},
		onnx.FloatAttr("alpha", 1))[0]
	norm := func(x *onnx.Value) *onnx.Value {
		return c.Op1("SimplifiedLayerNormalization", []*onnx.Value{x, c.Input(fused.GatedRMSNormScale)},
			onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", a.Epsilon),
			onnx.IntAttr("stash_type", int64(onnx.Float)))
	}
	x := c.Input(fused.GatedRMSNormX)
	if a.GateFirst {
		c.Output(0, norm(c.Op1("Mul", []*onnx.Value{x, gate})))
	} else {
		c.Output(0, c.Op1("Mul", []*onnx.Value{norm(x), gate}))
	}
	return nil
}

// ortSkipLayerNorm writes SkipLayerNormalization, which adds and normalizes rows of two or three dimensions.
func ortSkipLayerNorm(c *Call) error {
	const op = "SkipLayerNormalization"
	if err := halfOr32(op, c.Type(0)); err != nil {
		return err
	}
	if rank := len(c.Dims(0)); rank != 2 && rank != 3 {
		return fmt.Errorf("%s takes X of two or three dimensions, not %s", op, shapeText(c.Dims(0)))
	}
	inputs := make([]*onnx.Value, fused.AddLayerNormXBias+1)
	for i := range inputs {
		inputs[i] = c.Input(i)
	}
	y := c.Add(onnx.Microsoft, op, 1, inputs,
		onnx.FloatAttr("epsilon", fused.Read[fused.AddLayerNorm](c.Site.Attributes).Epsilon))[0]
	c.Output(0, y)
	c.Output(1, c.output(y.Producer, 3)) // after the mean and the deviation
	return nil
}

// ortBiasGELU writes an op that adds the bias itself.
func ortBiasGELU(op, activation string) func(*Call) error {
	return func(c *Call) error {
		if c.asGLU().Activation != activation {
			return errOther
		}
		if err := halfOr32(op, c.Type(0)); err != nil {
			return err
		}
		c.Output(0, c.Add(onnx.Microsoft, op, 1, []*onnx.Value{c.Input(0), c.Input(1)})[0])
		return nil
	}
}

// ortBiasQuickGELU writes QuickGelu of a sum.
func ortBiasQuickGELU(c *Call) error {
	if c.asGLU().Activation != "silu" {
		return errOther
	}
	if err := halfOr32("QuickGelu", c.Type(0)); err != nil {
		return err
	}
	sum := c.Op1("Add", []*onnx.Value{c.Input(0), c.Input(1)})
	c.Output(0, c.Add(onnx.Microsoft, "QuickGelu", 1, []*onnx.Value{sum}, onnx.FloatAttr("alpha", c.asGLU().Alpha))[0])
	return nil
}

// ortSwiGLU writes QuickGelu. With alpha = 1 it is SiLU.
func ortSwiGLU(c *Call) error {
	return c.ortGLU("QuickGelu", "silu", onnx.FloatAttr("alpha", c.asGLU().Alpha))
}

func ortGeGLU(op, activation string) func(*Call) error {
	return func(c *Call) error { return c.ortGLU(op, activation) }
}

func (c *Call) ortGLU(op, activation string, attrs ...*onnx.Attribute) error {
	if c.asGLU().Activation != activation {
		return errOther
	}
	if err := halfOr32(op, c.Type(0)); err != nil {
		return err
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value {
		return c.Add(onnx.Microsoft, op, 1, []*onnx.Value{gate}, attrs...)[0]
	})
	return nil
}

// ortRotary writes com.microsoft's RotaryEmbedding, whose tables are [rows, pairs]. One table serves the whole batch if
// its rows are the positions counted from 0. Otherwise there is a row for each position of each sequence.
func ortRotary(c *Call) error {
	if err := halfOr32("RotaryEmbedding", c.Type(0)); err != nil {
		return err
	}
	r, err := c.rotation(func(heads int64) bool { return heads > 0 })
	if err != nil {
		return errors.New("RotaryEmbedding: " + err.Error())
	}
	positions := c.Integers(0)
	if !r.oneBatch() {
		positions = r.numbered()
		r.expand()
	}
	if rows := c.Integers(-1, r.tables.dims[len(r.tables.dims)-1]); len(r.tables.dims) != 2 || !r.oneBatch() {
		r.tables.each(func(v *onnx.Value) *onnx.Value { return c.Op1("Reshape", []*onnx.Value{v, rows}) })
	}
	attrs := []*onnx.Attribute{onnx.BoolAttr("interleaved", r.interleaved)}
	if r.partial != 0 {
		attrs = append(attrs, onnx.IntAttr("num_heads", r.heads), onnx.IntAttr("rotary_embedding_dim", r.partial))
	}
	r.finish(c.Add(onnx.Microsoft, "RotaryEmbedding", 1, []*onnx.Value{r.x, positions, r.tables.cos, r.tables.sin},
		attrs...)[0])
	return nil
}

// ortAttention writes the standard's Attention. MultiHeadAttention cannot share heads of keys, and GroupQueryAttention
// accepts several queries after a cache only for batch 1.
func ortAttention(c *Call) error {
	if err := halfOr32("Attention", c.Type(fused.AttentionQ)); err != nil {
		return err
	}
	return standardAttention(c)
}

// numbered numbers the positions of all sequences consecutively: [batch, positions].
func (r *rotation) numbered() *onnx.Value {
	c, shape := r.c, r.rowShape()
	count := c.Op1("ReduceProd", []*onnx.Value{shape}, onnx.IntAttr("keepdims", 0))
	number := func(x int64) *onnx.Value { return c.Op1("Constant", nil, onnx.IntAttr("value_int", x)) }
	return c.Op1("Reshape", []*onnx.Value{c.Op1("Range", []*onnx.Value{number(0), count, number(1)}), shape})
}
