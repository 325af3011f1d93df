// Package gelu has BiasGELU.
package gelu

import (
	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// Op adds a bias and applies GELU, as between the two products of an encoder's MLP.
var Op = &op.Op{
	Name:    "BiasGELU",
	Summary: "GELU of a sum with a bias: exact, or approximated by tanh or a sigmoid.",
	Formula: []string{
		"g = round_T(X + bias)",
		"activation=gelu:      Y = round_T(0.5 * g * (1 + erf(g / sqrt(2))))",
		"activation=gelu_tanh: Y = round_T(" + glu.TanhFormula + ")",
		"activation=silu:      Y = round_T(g * sigmoid(alpha * g))",
	},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "bias", Type: "T", Dims: "D"},
	},
	Outputs: []op.Param{{Name: "Y", Type: "T", Dims: "A... D"}},
	Family:  &op.Family{Name: "gelu", Summary: "GELU with the bias before it"},
	Devices: []op.Device{op.CPU, op.CUDA},
	Attributes: []op.AttributeSpec{
		{Name: "activation", Type: onnx.AttrString, Values: []string{"silu", "gelu", "gelu_tanh"},
			Doc: "the form of the GELU"},
		{Name: "alpha", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{1.0, 1.702},
			Doc: "factor inside the sigmoid of silu (1.702 for CLIP); 1 for the others"},
	},
	Rules: []op.Rule{glu.AlphaRule},
	Types: op.Independent("T"),
	Source: "Hendrycks and Gimpel, Gaussian Error Linear Units (2016), whose approximation by a sigmoid is silu with " +
		"alpha=1.702",
	Shapes: func(s op.Site) [][][]int64 {
		if attrs := op.Read[BiasGELU](s.Attributes); attrs.Activation != "silu" && attrs.Alpha != 1 {
			return nil
		}
		return [][][]int64{{op.ExampleX, op.ExampleX[2:]}, {{3, 256}, {256}}}
	},
	Variant: func(s op.Site) string { return op.Read[BiasGELU](s.Attributes).Activation },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow[1:]}, onnx.StringAttr("activation", "gelu")),
			form([][]int64{op.WideRow, op.WideRow[1:]}, onnx.StringAttr("activation", "gelu_tanh"))}
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value {
		g := b.Call("g_32", "Add", b.Float32("X_32", b.In[0]), b.Float32("bias_32", b.In[1]))
		g = b.Rounded("g", g, 0)
		if op.Read[BiasGELU](s.Attributes).Activation == "silu" {
			return []*onnx.Value{b.Round("Y", glu.Activated(b, s, g), 0)}
		}
		// The half comes first: the product of the greatest numbers with 2 would overflow.
		half := b.Call("halved", "Mul", g, b.Number("half", 0.5))
		sum := b.Call("one_plus", "Add", glu.Curve(b, s, g), b.Number("one", 1))
		return []*onnx.Value{b.Round("Y", b.Call("activated", "Mul", half, sum), 0)}
	},
}
