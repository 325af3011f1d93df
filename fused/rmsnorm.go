package fused

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var normAttributes = append([]AttributeSpec{
	{Name: "axis", Type: onnx.AttrInt,
		Doc:    "first normalized axis, counted from the end (negative): -1 normalizes only the last axis",
		Bounds: Bounds{Least: -16, Most: -1, Note: "negative; -1 is the last axis"}, Grid: []any{-1}},
}, scaleAttributes...)

var scaleAttributes = []AttributeSpec{
	{Name: "epsilon", Type: onnx.AttrFloat, Doc: "added to the mean of the squares", Bounds: notNegative,
		Grid: []any{1e-6}},
	{Name: "scale_after_cast", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
		Doc: "1: the normalized values are rounded to the type of scale before scale is applied; 0: scale is applied " +
			"in float32"},
}

// normTypes lists the types of X (T) and scale (S). Equal types work with both values of scale_after_cast. Unequal
// types work with one value: the product takes the type of the output, which is the narrow one in every export seen.
var normTypes = []Combination{
	{Types: map[string]onnx.DataType{"T": f32, "S": f32}},
	{Types: map[string]onnx.DataType{"T": f16, "S": f16}},
	{Types: map[string]onnx.DataType{"T": bf16, "S": bf16}},
	{Types: map[string]onnx.DataType{"T": f16, "S": f32}, Attribute: "scale_after_cast", Value: 0},
	{Types: map[string]onnx.DataType{"T": bf16, "S": f32}, Attribute: "scale_after_cast", Value: 0},
	{Types: map[string]onnx.DataType{"T": f32, "S": f16}, Attribute: "scale_after_cast", Value: 1},
	{Types: map[string]onnx.DataType{"T": f32, "S": bf16}, Attribute: "scale_after_cast", Value: 1},
}

// normVariables defines N, the type of a norm's result.
var normVariables = []Variable{{Name: "N", Doc: "the type of the norm's result", Attribute: "scale_after_cast",
	Of: []string{"T", "S"}}}

var normFamily = &Family{
	Name: "rmsnorm", Summary: "RMSNorm, also with the residual addition before it or with a gate",
}

// exampleX is a shape of X whose row length is not a multiple of a vector width.
var exampleX = []int64{2, 3, 22}

var normFormula = []string{
	"n = float32(X) / sqrt(mean(float32(X)^2, axes axis..-1) + epsilon)",
	"scale_after_cast=0: Y = round_T(n * float32(scale))",
	"scale_after_cast=1: Y = round_S(round_S(n) * scale)",
}

// rmsNorm is root-mean-square layer normalization.
var rmsNorm = &Op{
	Name:    "RMSNorm",
	Summary: "Root-mean-square layer normalization with statistics in float32.",
	Formula: normFormula,
	Family:  normFamily,
	Devices: Devices(),
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A...", Doc: "rank of at least -axis"},
		{Name: "scale", Type: "S", Dims: "A...[axis]"},
	},
	Outputs:    []Param{{Name: "Y", Type: "N", Dims: "A..."}},
	Attributes: normAttributes,
	Types:      normTypes,
	Variables:  normVariables,
	Source: "Zhang and Sennrich, Root Mean Square Layer Normalization (2019); RMSNormalization of ONNX opset 23 is " +
		"scale_after_cast=1 with stash_type=1, the modules of PyTorch transformers are either form",
	check:    func(s Site) error { return normSupports("RMSNorm", s, 1) },
	examples: func(Site) [][][]int64 { return [][][]int64{{exampleX, exampleX[2:]}} },
	overload: func(s Site) string { return normOverload(s, Read[RMSNorm](s.Attributes).Axis) },
	define: func(b *body, s Site) []*onnx.Value {
		return []*onnx.Value{normBody(b, s, "Y", Read[RMSNorm](s.Attributes).Axis, b.in[0], 0, 1)}
	},
}

// addRMSNorm is a residual addition and the RMSNorm of the sum.
var addRMSNorm = &Op{
	Name:    "AddRMSNorm",
	Summary: "Residual addition followed by root-mean-square layer normalization; the sum is an output too.",
	Family:  normFamily,
	Devices: Devices(),
	Formula: append([]string{"sum = round_T(X + residual)"},
		"Y = RMSNorm(sum, scale; axis, epsilon, scale_after_cast)"),
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A...", Doc: "rank of at least -axis"},
		{Name: "residual", Type: "T", Dims: "A...", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "A...[axis]"},
	},
	Outputs: []Param{
		{Name: "Y", Type: "N", Dims: "A..."},
		{Name: "sum", Type: "T", Dims: "A...", Optional: true},
	},
	Attributes: normAttributes,
	Types:      normTypes,
	Variables:  normVariables,
	Source:     "pre-norm decoder blocks: the sum feeds the next block, its norm feeds attention or MLP",
	check:      func(s Site) error { return normSupports("AddRMSNorm", s, 2) },
	examples:   func(Site) [][][]int64 { return [][][]int64{{exampleX, exampleX, exampleX[2:]}} },
	overload:   func(s Site) string { return normOverload(s, Read[RMSNorm](s.Attributes).Axis) },
	define: func(b *body, s Site) []*onnx.Value {
		exact := b.call("sum_32", "Add", b.float32("X_32", b.in[0]), b.float32("residual_32", b.in[1]))
		sum := b.round("sum", exact, 0)
		return []*onnx.Value{normBody(b, s, "Y", Read[RMSNorm](s.Attributes).Axis, sum, 0, 2), sum}
	},
}

// normBody normalizes x, which has the type of input xIn, from axis on, and scales it by input scaleIn. It calls the
// result name.
func normBody(b *body, s Site, name string, axis int64, x *onnx.Value, xIn, scaleIn int) *onnx.Value {
	product := normProduct(b, s, axis, x, scaleIn)
	if Read[RMSNorm](s.Attributes).ScaleAfterCast {
		return b.round(name, product, scaleIn)
	}
	return b.round(name, product, xIn)
}

// normProduct returns the result of normBody before its last rounding. It uses Pow, ReduceMean, Add, Sqrt, Div, Mul
// because onnxruntime fuses these nodes into its own kernel.
func normProduct(b *body, s Site, axis int64, x *onnx.Value, scaleIn int) *onnx.Value {
	n := -axis
	axes := make([]int64, n)
	for i := range axes {
		axes[i] = int64(i) - n
	}
	xf := b.float32("x", x)
	scale := b.float32("scale_32", b.in[scaleIn])
	squares := b.call("squares", "Pow", xf, b.number("two", 2))
	variance := b.call("variance", "Add", b.mean("mean", squares, axes), b.attribute("epsilon"))
	normalized := b.call("normalised", "Div", xf, b.call("deviation", "Sqrt", variance))
	if b.nudge != nil {
		normalized = b.call("nudged", "Mul", normalized, b.nudge)
	}
	if Read[RMSNorm](s.Attributes).ScaleAfterCast {
		normalized = b.rounded("rounded", normalized, scaleIn)
	}
	return b.call("scaled", "Mul", normalized, scale)
}

func normOverload(s Site, axis int64) string {
	name := "scale_in_float32"
	if Read[RMSNorm](s.Attributes).ScaleAfterCast {
		name = "scale_after_cast"
	}
	if axis != -1 {
		name += fmt.Sprintf("_last_%d_axes", -axis)
	}
	return name
}

// normSupports errs if a normalized dimension of input 0, or of input scale, is unknown.
func normSupports(op string, s Site, scale int) error {
	x, w := s.dims(0), s.dims(scale)
	if x == nil || w == nil {
		return nil
	}
	if slices.Contains(w, -1) || slices.Contains(x[len(x)-len(w):], -1) {
		return fmt.Errorf("mojo.%s needs to know the normalized dimensions: X is %s, scale is %s; "+
			"export the model with a fixed hidden size", op, open(x), open(w))
	}
	return nil
}

// open formats dimensions, with ? for unknown ones.
func open(dims []int64) string { return strings.ReplaceAll(fmt.Sprint(dims), "-1", "?") }
