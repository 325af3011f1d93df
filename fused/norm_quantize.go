package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// float8Opset is the opset whose Cast knows float8e4m3fn.
const float8Opset = 19

// quantizedMost maps the types of Y to the magnitude that the greatest magnitude of a row becomes.
var quantizedMost = map[onnx.DataType]float32{onnx.Int8: 127, onnx.Float8E4M3FN: 448}

// normQuantize is an RMSNorm, with or without a residual addition before it, whose result is rounded to 8 bits.
var normQuantize = &Op{
	Name: "NormQuantize",
	Summary: "Root-mean-square layer normalization of X or of X + residual, rounded to int8 or float8e4m3fn with a " +
		"scale for each row.",
	Formula: []string{
		"sum = round_T(X + residual), or X without a residual",
		"n = float32(sum) / sqrt(mean(float32(sum)^2, last axis) + epsilon)",
		"scale_after_cast=0: v = n * float32(scale)",
		"scale_after_cast=1: v = float32(round_S(round_S(n) * scale))",
		"Y_scale = max(max(|v|, last axis) / most, least_scale), most = 127 for int8, 448 for float8e4m3fn",
		"int8: Y = clip(round(v / Y_scale), -128, 127);  float8e4m3fn: Y = round_Q(clip(v / Y_scale, -448, 448))",
		"If a row of v has an infinity or a NaN, its Y is not specified and its Y_scale is not finite.",
	},
	Family:  normFamily,
	Devices: []Device{CPU},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "zero", Type: "Q", Dims: "1", Doc: "its type is the type of Y; its value is not read"},
		{Name: "residual", Type: "T", Dims: "A... D", Doc: "no broadcasting", Optional: true},
	},
	Outputs: []Param{
		{Name: "Y", Type: "Q", Dims: "A... D"},
		{Name: "Y_scale", Type: "float32", Dims: "A... 1"},
		{Name: "sum", Type: "T", Dims: "A... D", Optional: true},
	},
	Attributes: []AttributeSpec{
		scaleAttributes[0],
		{Name: "scale_after_cast", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
			Doc: "1: the normalized values and their products with scale are rounded to the type of scale; 0: " +
				"nothing is rounded before Y"},
		{Name: "least_scale", Type: onnx.AttrFloat, Doc: "lower bound of Y_scale, which rows of zeros have",
			Bounds: Bounds{Least: 1e-20, Most: 1}, Grid: []any{0x1p-30}},
	},
	Types: normQuantizeTypes(),
	Source: "RMSNormQuant of Mojo Opset is scale_after_cast=0. rms_norm_dynamic_per_token_quant of vLLM is " +
		"scale_after_cast=1 with a least_scale of 2^-23 for int8 and 1/(448*512) for float8e4m3fn, except that it " +
		"normalizes a sum before the sum is rounded, multiplies by 1/Y_scale for int8, and can bound Y_scale from " +
		"above",
	check: func(s Site) error {
		if s.Types[NormQuantizeZero] == onnx.Float8E4M3FN && s.Opset < float8Opset {
			return fmt.Errorf("mojo.NormQuantize to float8e4m3fn needs opset %d or newer: the model imports opset %d",
				float8Opset, s.Opset)
		}
		return nil
	},
	examples: func(Site) [][][]int64 {
		row := exampleX[len(exampleX)-1:]
		return [][][]int64{{exampleX, row, {1}}, {exampleX, row, {1}, exampleX}}
	},
	overload: func(s Site) string {
		return normOverload(s, -1) + "_to_" + s.Types[NormQuantizeZero].String() +
			named(s, NormQuantizeResidual, "_residual")
	},
	steps: func(b *body, s Site) (v, scale *onnx.Value) {
		_, v, scale = normSteps(b, s)
		return v, scale
	},
	define: normQuantizeBody,
}

// normQuantizeTypes lists the types of X (T), scale (S) and Y (Q). X is never wider than scale.
func normQuantizeTypes() (list []Combination) {
	for _, c := range normTypes {
		if c.Attribute == "" || c.Value == 0 {
			list = append(list, c.with("Q", onnx.Int8), c.with("Q", onnx.Float8E4M3FN))
		}
	}
	return list
}

func normQuantizeBody(b *body, s Site) []*onnx.Value {
	sum, v, scale := normSteps(b, s)
	y := b.call("steps", "Div", v, scale)
	most := quantizedMost[s.Types[NormQuantizeZero]]
	least := -most
	if s.Types[NormQuantizeZero] == onnx.Int8 {
		y, least = b.call("whole", "Round", y), least-1
	}
	y = b.call("clipped", "Clip", y, b.number("least", least), b.number("greatest", most))
	return []*onnx.Value{b.round("Y", y, NormQuantizeZero), scale, sum}
}

// normSteps builds the sum, its norm, and the scales that divide the norm.
func normSteps(b *body, s Site) (sum, v, scale *onnx.Value) {
	sum = b.in[NormQuantizeX]
	if s.has(NormQuantizeResidual) {
		exact := b.call("sum_32", "Add", b.float32("X_32", sum), b.float32("residual_32", b.in[NormQuantizeResidual]))
		sum = b.round("sum", exact, NormQuantizeX)
	}
	v = normProduct(b, s, -1, sum, NormQuantizeScale)
	if Read[NormQuantize](s.Attributes).ScaleAfterCast {
		v = b.rounded("v", v, NormQuantizeScale)
	}
	most := b.number("most", quantizedMost[s.Types[NormQuantizeZero]])
	step := b.call("step", "Div", b.greatest("row_most", b.call("magnitude", "Abs", v)), most)
	return sum, v, b.call("Y_scale", "Max", step, b.attribute("least_scale"))
}
