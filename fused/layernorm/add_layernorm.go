// Package layernorm has AddLayerNorm.
package layernorm

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// Op adds a residual, and optionally the bias of the product before it, and normalizes the sum.
var Op = &op.Op{
	Name: "AddLayerNorm",
	Summary: "Residual addition, with the bias of the projection before it, followed by layer normalization; the sum " +
		"is an output too.",
	Formula: []string{
		"sum = round_T(round_T(X + X_bias) + residual)",
		"v = float32(round_S(sum));  c = v - mean(v, last axis);  n = c / sqrt(mean(c^2, last axis) + epsilon)",
		"Y = round_S(n * float32(scale) + float32(bias))",
	},
	Family:  &op.Family{Name: "layernorm", Summary: "LayerNorm with the residual addition before it"},
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "residual", Type: "T", Dims: "A... D", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "bias", Type: "S", Dims: "D"},
		{Name: "X_bias", Type: "T", Dims: "D", Optional: true},
	},
	Outputs: []op.Param{
		{Name: "Y", Type: "S", Dims: "A... D"},
		{Name: "sum", Type: "T", Dims: "A... D", Optional: true},
	},
	Attributes: []op.AttributeSpec{
		{Name: "epsilon", Type: onnx.AttrFloat, Doc: "added to the mean of the squares", Bounds: op.NotNegative,
			Grid: []any{1e-5}},
	},
	// A residual stream may stay in float32 when the blocks are narrower.
	Types: []op.Combination{
		{Types: map[string]onnx.DataType{"T": op.F32, "S": op.F32}},
		{Types: map[string]onnx.DataType{"T": op.F16, "S": op.F16}},
		{Types: map[string]onnx.DataType{"T": op.BF16, "S": op.BF16}},
		{Types: map[string]onnx.DataType{"T": op.F32, "S": op.F16}},
		{Types: map[string]onnx.DataType{"T": op.F32, "S": op.BF16}},
	},
	Source: "Ba, Kiros and Hinton, Layer Normalization (2016); in BERT the next block reads only the norm, in ViT " +
		"and Whisper also the sum",
	Shapes: func(op.Site) [][][]int64 {
		var list [][][]int64
		// A width for each form of the kernels.
		for _, x := range [][]int64{op.ExampleX, {3, 128}, {2, 1, 3072}, {2, 12288}} {
			row := x[len(x)-1:]
			list = append(list, [][]int64{x, x, row, row}, [][]int64{x, x, row, row, row})
		}
		return list
	},
	Variant: func(s op.Site) string { return "last_axis" + op.IfGiven(s, AddLayerNormXBias, "_x_bias") },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow, op.WideRow[1:], op.WideRow[1:], op.WideRow[1:]})}
	},
	Body: addLayerBody,
}

func addLayerBody(b *op.Body, s op.Site) []*onnx.Value {
	x := b.Float32("X_32", b.In[AddLayerNormX])
	if s.Has(AddLayerNormXBias) {
		x = b.Rounded("X_biased", b.Call("X_plus_bias", "Add", x, b.Float32("X_bias_32", b.In[AddLayerNormXBias])), 0)
	}
	sum := b.Round("sum", b.Call("sum_32", "Add", x, b.Float32("residual_32", b.In[AddLayerNormResidual])), 0)
	v := b.Rounded("v", b.Float32("sum_again_32", sum), AddLayerNormScale)
	scale, bias := b.Float32("scale_32", b.In[AddLayerNormScale]), b.Float32("bias_32", b.In[AddLayerNormBias])
	y := layerNorm(b, v, scale, bias)
	return []*onnx.Value{b.Round("Y", y, AddLayerNormScale), sum}
}

// layerNorm returns the LayerNorm of v over the last axis, all in float32. From opset 17 it is the standard's op, which
// runtimes have kernels for. Before, it multiplies by the inverse of the root: onnxruntime fuses a division by the root
// into a LayerNormalization that reads the scale from before its cast.
func layerNorm(b *op.Body, v, scale, bias *onnx.Value) *onnx.Value {
	if b.Site.Opset >= op.LayerNormOpset {
		return b.Op("normalized", "LayerNormalization", []*onnx.Value{v, scale, bias}, onnx.IntAttr("axis", -1),
			onnx.RefAttr("epsilon", onnx.AttrFloat, "epsilon"))
	}
	centered := b.Call("centered", "Sub", v, b.Mean("mean", v, []int64{-1}))
	squares := b.Call("squares", "Pow", centered, b.Number("two", 2))
	variance := b.Call("variance", "Add", b.Mean("mean_square", squares, []int64{-1}), b.Attribute("epsilon"))
	inverse := b.Call("inverse", "Reciprocal", b.Call("deviation", "Sqrt", variance))
	scaled := b.Call("scaled", "Mul", b.Call("normalized", "Mul", centered, inverse), scale)
	return b.Call("shifted", "Add", scaled, bias)
}
