package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// addLayerNorm adds a residual, and optionally the bias of the product before it, and normalizes the sum.
var addLayerNorm = &Op{
	Name: "AddLayerNorm",
	Summary: "Residual addition, with the bias of the projection before it, followed by layer normalization; the sum " +
		"is an output too.",
	Formula: []string{
		"sum = round_T(round_T(X + X_bias) + residual)",
		"v = float32(round_S(sum));  c = v - mean(v, last axis);  n = c / sqrt(mean(c^2, last axis) + epsilon)",
		"Y = round_S(n * float32(scale) + float32(bias))",
	},
	Family:  &Family{Name: "layernorm", Summary: "LayerNorm with the residual addition before it"},
	Devices: []Device{CPU, CUDA},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "residual", Type: "T", Dims: "A... D", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "bias", Type: "S", Dims: "D"},
		{Name: "X_bias", Type: "T", Dims: "D", Optional: true},
	},
	Outputs: []Param{
		{Name: "Y", Type: "S", Dims: "A... D"},
		{Name: "sum", Type: "T", Dims: "A... D", Optional: true},
	},
	Attributes: []AttributeSpec{
		{Name: "epsilon", Type: onnx.AttrFloat, Doc: "added to the mean of the squares", Bounds: notNegative,
			Grid: []any{1e-5}},
	},
	// A residual stream may stay in float32 when the blocks are narrower.
	Types: []Combination{
		{Types: map[string]onnx.DataType{"T": f32, "S": f32}},
		{Types: map[string]onnx.DataType{"T": f16, "S": f16}},
		{Types: map[string]onnx.DataType{"T": bf16, "S": bf16}},
		{Types: map[string]onnx.DataType{"T": f32, "S": f16}},
		{Types: map[string]onnx.DataType{"T": f32, "S": bf16}},
	},
	Source: "Ba, Kiros and Hinton, Layer Normalization (2016); in BERT the next block reads only the norm, in ViT " +
		"and Whisper also the sum",
	examples: func(Site) [][][]int64 {
		var list [][][]int64
		// A width for each form of the kernels.
		for _, x := range [][]int64{exampleX, {3, 128}, {2, 1, 3072}, {2, 12288}} {
			row := x[len(x)-1:]
			list = append(list, [][]int64{x, x, row, row}, [][]int64{x, x, row, row, row})
		}
		return list
	},
	overload: func(s Site) string { return "last_axis" + named(s, AddLayerNormXBias, "_x_bias") },
	define:   addLayerBody,
}

func addLayerBody(b *body, s Site) []*onnx.Value {
	x := b.float32("X_32", b.in[AddLayerNormX])
	if s.has(AddLayerNormXBias) {
		x = b.rounded("X_biased", b.call("X_plus_bias", "Add", x, b.float32("X_bias_32", b.in[AddLayerNormXBias])), 0)
	}
	sum := b.round("sum", b.call("sum_32", "Add", x, b.float32("residual_32", b.in[AddLayerNormResidual])), 0)
	v := b.rounded("v", b.float32("sum_again_32", sum), AddLayerNormScale)
	scale, bias := b.float32("scale_32", b.in[AddLayerNormScale]), b.float32("bias_32", b.in[AddLayerNormBias])
	y := b.layerNorm(v, scale, bias)
	return []*onnx.Value{b.round("Y", y, AddLayerNormScale), sum}
}

// layerNorm returns the LayerNorm of v over the last axis, all in float32. From opset 17 it is the standard's op, which
// runtimes have kernels for. Before, it multiplies by the inverse of the root: onnxruntime fuses a division by the root
// into a LayerNormalization that reads the scale from before its cast.
func (b *body) layerNorm(v, scale, bias *onnx.Value) *onnx.Value {
	if b.site.Opset >= layerNormOpset {
		return b.op("normalized", "LayerNormalization", []*onnx.Value{v, scale, bias}, onnx.IntAttr("axis", -1),
			onnx.RefAttr("epsilon", onnx.AttrFloat, "epsilon"))
	}
	centered := b.call("centered", "Sub", v, b.mean("mean", v, []int64{-1}))
	squares := b.call("squares", "Pow", centered, b.number("two", 2))
	variance := b.call("variance", "Add", b.mean("mean_square", squares, []int64{-1}), b.attribute("epsilon"))
	inverse := b.call("inverse", "Reciprocal", b.call("deviation", "Sqrt", variance))
	scaled := b.call("scaled", "Mul", b.call("normalized", "Mul", centered, inverse), scale)
	return b.call("shifted", "Add", scaled, bias)
}
