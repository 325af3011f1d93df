// Package rmsnorm has RMSNorm, alone and with what surrounds it.
package rmsnorm

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op, AddOp, gatedRMSNorm, normQuantize}

var normAttributes = append([]op.AttributeSpec{
	{Name: "axis", Type: onnx.AttrInt,
		Doc:    "first normalized axis, counted from the end (negative): -1 normalizes only the last axis",
		Bounds: op.Bounds{Least: -16, Most: -1, Note: "negative; -1 is the last axis"}, Grid: []any{-1}},
}, ScaleAttributes...)

// ScaleAttributes are the attributes of a norm over the last axis.
var ScaleAttributes = []op.AttributeSpec{
	{Name: "epsilon", Type: onnx.AttrFloat, Doc: "added to the mean of the squares", Bounds: op.NotNegative,
		Grid: []any{1e-6}},
	{Name: "scale_after_cast", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
		Doc: "1: the normalized values are rounded to the type of scale before scale is applied; 0: scale is applied " +
			"in float32"},
}

// Types lists the types of X (T) and scale (S). Equal types work with both values of scale_after_cast. Unequal
// types work with one value: the product takes the type of the output, which is the narrow one in every export seen.
var Types = []op.Combination{
	{Types: map[string]onnx.DataType{"T": op.F32, "S": op.F32}},
	{Types: map[string]onnx.DataType{"T": op.F16, "S": op.F16}},
	{Types: map[string]onnx.DataType{"T": op.BF16, "S": op.BF16}},
	{Types: map[string]onnx.DataType{"T": op.F16, "S": op.F32}, Attribute: "scale_after_cast", Value: 0},
	{Types: map[string]onnx.DataType{"T": op.BF16, "S": op.F32}, Attribute: "scale_after_cast", Value: 0},
	{Types: map[string]onnx.DataType{"T": op.F32, "S": op.F16}, Attribute: "scale_after_cast", Value: 1},
	{Types: map[string]onnx.DataType{"T": op.F32, "S": op.BF16}, Attribute: "scale_after_cast", Value: 1},
}

// Variables defines N, the type of a norm's result.
var Variables = []op.Variable{{Name: "N", Doc: "the type of the norm's result", Attribute: "scale_after_cast",
	Of: []string{"T", "S"}}}

var normFamily = &op.Family{
	Name: "rmsnorm", Summary: "RMSNorm, also with the residual addition before it or with a gate",
}

var normFormula = []string{
	"n = float32(X) / sqrt(mean(float32(X)^2, axes axis..-1) + epsilon)",
	"scale_after_cast=0: Y = round_T(n * float32(scale))",
	"scale_after_cast=1: Y = round_S(round_S(n) * scale)",
}

// Op is root-mean-square layer normalization.
var Op = &op.Op{
	Name:    "RMSNorm",
	Summary: "Root-mean-square layer normalization with statistics in float32.",
	Formula: normFormula,
	Family:  normFamily,
	Devices: op.Devices(),
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A...", Doc: "rank of at least -axis"},
		{Name: "scale", Type: "S", Dims: "A...[axis]"},
	},
	Outputs:    []op.Param{{Name: "Y", Type: "N", Dims: "A..."}},
	Attributes: normAttributes,
	Types:      Types,
	Variables:  Variables,
	Source: "Zhang and Sennrich, Root Mean Square Layer Normalization (2019); RMSNormalization of ONNX opset 23 is " +
		"scale_after_cast=1 with stash_type=1, the modules of PyTorch transformers are either form",
	Check:   func(s op.Site) error { return Supports("RMSNorm", s, 1) },
	Shapes:  func(op.Site) [][][]int64 { return [][][]int64{{op.ExampleX, op.ExampleX[2:]}} },
	Variant: func(s op.Site) string { return Overload(s, op.Read[RMSNorm](s.Attributes).Axis) },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow[1:]})}
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value {
		return []*onnx.Value{Norm(b, s, "Y", op.Read[RMSNorm](s.Attributes).Axis, b.In[0], 0, 1)}
	},
}

// AddOp is a residual addition and the RMSNorm of the sum.
var AddOp = &op.Op{
	Name:    "AddRMSNorm",
	Summary: "Residual addition followed by root-mean-square layer normalization; the sum is an output too.",
	Family:  normFamily,
	Devices: op.Devices(),
	Formula: append([]string{"sum = round_T(X + residual)"},
		"Y = RMSNorm(sum, scale; axis, epsilon, scale_after_cast)"),
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A...", Doc: "rank of at least -axis"},
		{Name: "residual", Type: "T", Dims: "A...", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "A...[axis]"},
	},
	Outputs: []op.Param{
		{Name: "Y", Type: "N", Dims: "A..."},
		{Name: "sum", Type: "T", Dims: "A...", Optional: true},
	},
	Attributes: normAttributes,
	Types:      Types,
	Variables:  Variables,
	Source:     "pre-norm decoder blocks: the sum feeds the next block, its norm feeds attention or MLP",
	Check:      func(s op.Site) error { return Supports("AddRMSNorm", s, 2) },
	Shapes:     func(op.Site) [][][]int64 { return [][][]int64{{op.ExampleX, op.ExampleX, op.ExampleX[2:]}} },
	Variant:    func(s op.Site) string { return Overload(s, op.Read[RMSNorm](s.Attributes).Axis) },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow, op.WideRow[1:]})}
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value {
		exact := b.Call("sum_32", "Add", b.Float32("X_32", b.In[0]), b.Float32("residual_32", b.In[1]))
		sum := b.Round("sum", exact, 0)
		return []*onnx.Value{Norm(b, s, "Y", op.Read[RMSNorm](s.Attributes).Axis, sum, 0, 2), sum}
	},
}

// Norm normalizes x, which has the type of input xIn, from axis on, and scales it by input scaleIn. It calls the
// result name.
func Norm(b *op.Body, s op.Site, name string, axis int64, x *onnx.Value, xIn, scaleIn int) *onnx.Value {
	product := normProduct(b, s, axis, x, scaleIn)
	if op.Read[RMSNorm](s.Attributes).ScaleAfterCast {
		return b.Round(name, product, scaleIn)
	}
	return b.Round(name, product, xIn)
}

// normProduct returns the result of normBody before its last rounding. It uses Pow, ReduceMean, Add, Sqrt, Div, Mul
// because onnxruntime fuses these nodes into its own kernel.
func normProduct(b *op.Body, s op.Site, axis int64, x *onnx.Value, scaleIn int) *onnx.Value {
	n := -axis
	axes := make([]int64, n)
	for i := range axes {
		axes[i] = int64(i) - n
	}
	xf := b.Float32("x", x)
	scale := b.Float32("scale_32", b.In[scaleIn])
	squares := b.Call("squares", "Pow", xf, b.Number("two", 2))
	variance := b.Call("variance", "Add", b.Mean("mean", squares, axes), b.Attribute("epsilon"))
	normalized := b.Call("normalised", "Div", xf, b.Call("deviation", "Sqrt", variance))
	if b.Nudge != nil {
		normalized = b.Call("nudged", "Mul", normalized, b.Nudge)
	}
	if op.Read[RMSNorm](s.Attributes).ScaleAfterCast {
		normalized = b.Rounded("rounded", normalized, scaleIn)
	}
	return b.Call("scaled", "Mul", normalized, scale)
}

// Overload names a norm from axis on.
func Overload(s op.Site, axis int64) string {
	name := "scale_in_float32"
	if op.Read[RMSNorm](s.Attributes).ScaleAfterCast {
		name = "scale_after_cast"
	}
	if axis != -1 {
		name += fmt.Sprintf("_last_%d_axes", -axis)
	}
	return name
}

// Supports errs if a normalized dimension of input 0, or of input scale, is unknown.
func Supports(name string, s op.Site, scale int) error {
	x, w := s.Shape(0), s.Shape(scale)
	if x == nil || w == nil {
		return nil
	}
	if slices.Contains(w, -1) || slices.Contains(x[len(x)-len(w):], -1) {
		return fmt.Errorf("mojo.%s needs to know the normalized dimensions: X is %s, scale is %s; "+
			"export the model with a fixed hidden size", name, op.FormatDims(x), op.FormatDims(w))
	}
	return nil
}
