package rmsnorm

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// quantizedMost maps the types of Y to the magnitude that the greatest magnitude of a row becomes.
var quantizedMost = map[onnx.DataType]float32{onnx.Int8: 127, onnx.Float8E4M3FN: 448}

// normQuantize is an RMSNorm, with or without a residual addition before it, whose result is rounded to 8 bits.
var normQuantize = &op.Op{
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
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "zero", Type: "Q", Dims: "1", Doc: "its type is the type of Y; its value is not read"},
		{Name: "residual", Type: "T", Dims: "A... D", Doc: "no broadcasting", Optional: true},
	},
	Outputs: []op.Param{
		{Name: "Y", Type: "Q", Dims: "A... D"},
		{Name: "Y_scale", Type: "float32", Dims: "A... 1"},
		{Name: "sum", Type: "T", Dims: "A... D", Optional: true},
	},
	Attributes: []op.AttributeSpec{
		ScaleAttributes[0],
		{Name: "scale_after_cast", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
			Doc: "1: the normalized values and their products with scale are rounded to the type of scale; 0: " +
				"nothing is rounded before Y"},
		{Name: "least_scale", Type: onnx.AttrFloat, Doc: "lower bound of Y_scale, which rows of zeros have",
			Bounds: op.Bounds{Least: 1e-20, Most: 1}, Grid: []any{0x1p-30}},
	},
	Types: normQuantizeTypes(),
	Source: "RMSNormQuant of Mojo Opset is scale_after_cast=0. rms_norm_dynamic_per_token_quant of vLLM is " +
		"scale_after_cast=1 with a least_scale of 2^-23 for int8 and 1/(448*512) for float8e4m3fn, except that it " +
		"normalizes a sum before the sum is rounded, multiplies by 1/Y_scale for int8, and can bound Y_scale from " +
		"above",
	Check: func(s op.Site) error {
		if s.Types[NormQuantizeZero] == onnx.Float8E4M3FN && s.Opset < op.Float8Opset {
			return fmt.Errorf("mojo.NormQuantize to float8e4m3fn needs opset %d or newer: the model imports opset %d",
				op.Float8Opset, s.Opset)
		}
		return nil
	},
	Shapes: func(op.Site) [][][]int64 {
		row := op.ExampleX[len(op.ExampleX)-1:]
		return [][][]int64{{op.ExampleX, row, {1}}, {op.ExampleX, row, {1}, op.ExampleX}}
	},
	Variant: func(s op.Site) string {
		return Overload(s, -1) + "_to_" + s.Types[NormQuantizeZero].String() +
			op.IfGiven(s, NormQuantizeResidual, "_residual")
	},
	Unrounded: func(b *op.Body, s op.Site) (v, scale *onnx.Value) {
		_, v, scale = normSteps(b, s)
		return v, scale
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow[1:], {1}, op.WideRow})}
	},
	Body: normQuantizeBody,
}

// normQuantizeTypes lists the types of X (T), scale (S) and Y (Q). X is never wider than scale.
func normQuantizeTypes() (list []op.Combination) {
	for _, c := range Types {
		if c.Attribute == "" || c.Value == 0 {
			list = append(list, c.With("Q", onnx.Int8), c.With("Q", onnx.Float8E4M3FN))
		}
	}
	return list
}

func normQuantizeBody(b *op.Body, s op.Site) []*onnx.Value {
	sum, v, scale := normSteps(b, s)
	y := b.Call("steps", "Div", v, scale)
	most := quantizedMost[s.Types[NormQuantizeZero]]
	least := -most
	if s.Types[NormQuantizeZero] == onnx.Int8 {
		y, least = b.Call("whole", "Round", y), least-1
	}
	y = b.Call("clipped", "Clip", y, b.Number("least", least), b.Number("greatest", most))
	return []*onnx.Value{b.Round("Y", y, NormQuantizeZero), scale, sum}
}

// normSteps builds the sum, its norm, and the scales that divide the norm.
func normSteps(b *op.Body, s op.Site) (sum, v, scale *onnx.Value) {
	sum = b.In[NormQuantizeX]
	if s.Has(NormQuantizeResidual) {
		exact := b.Call("sum_32", "Add", b.Float32("X_32", sum), b.Float32("residual_32", b.In[NormQuantizeResidual]))
		sum = b.Round("sum", exact, NormQuantizeX)
	}
	v = normProduct(b, s, -1, sum, NormQuantizeScale)
	if op.Read[NormQuantize](s.Attributes).ScaleAfterCast {
		v = b.Rounded("v", v, NormQuantizeScale)
	}
	most := b.Number("most", quantizedMost[s.Types[NormQuantizeZero]])
	step := b.Call("step", "Div", b.Greatest("row_most", b.Call("magnitude", "Abs", v)), most)
	return sum, v, b.Call("Y_scale", "Max", step, b.Attribute("least_scale"))
}
