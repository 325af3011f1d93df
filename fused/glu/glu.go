// Package glu has GLU.
package glu

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// TanhFormula is the formula of GELU's approximation by tanh.
const TanhFormula = "0.5 * g * (1 + tanh(sqrt(2/pi) * (g + 0.044715 * g^3)))"

// Op is the elementwise half of a gated linear unit: the activated gate times up.
var Op = &op.Op{
	Name:    "GLU",
	Summary: "Gated activation: SwiGLU, GeGLU and the clamped form of gpt-oss.",
	Formula: []string{
		"g = limit > 0 ? min(gate, limit) : gate;  u = limit > 0 ? clamp(up, -limit, limit) : up",
		"activation=silu:      a = g * sigmoid(alpha * g)",
		"activation=gelu:      a = 0.5 * g * (1 + erf(g / sqrt(2)))",
		"activation=gelu_tanh: a = " + TanhFormula,
		"Y = round_T(round_T(a) * round_T(u + up_offset))",
	},
	Inputs: []op.Param{
		{Name: "gate", Type: "T", Dims: "A..."},
		{Name: "up", Type: "T", Dims: "A...", Doc: "no broadcasting"},
	},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: "A..."}},
	Family:     &op.Family{Name: "swiglu", Summary: "gated activations: SwiGLU and GeGLU"},
	Devices:    op.Devices(),
	Attributes: Attributes([]string{"silu", "gelu", "gelu_tanh"}),
	Rules:      []op.Rule{AlphaRule},
	Types:      op.Independent("T"),
	Source:     "Shazeer, GLU Variants Improve Transformer (2020); the clamped form is the reference of gpt-oss",
	Shapes: func(s op.Site) [][][]int64 {
		if !Tried(s) {
			return nil
		}
		return [][][]int64{{op.ExampleX, op.ExampleX}}
	},
	Variant: Overload,
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow}),
			form([][]int64{op.WideRow, op.WideRow}, onnx.StringAttr("activation", "gelu")),
			form([][]int64{op.WideRow, op.WideRow}, onnx.StringAttr("activation", "gelu_tanh"))}
	},
	Body: gluBody,
}

// Attributes returns the attributes of a gate.
func Attributes(activations []string) []op.AttributeSpec {
	return []op.AttributeSpec{
		{Name: "activation", Type: onnx.AttrString, Values: activations, Doc: "activation of the gate"},
		{Name: "alpha", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{1.0, 1.702},
			Doc: "factor inside the sigmoid of silu (1 for SwiGLU, 1.702 for gpt-oss); 1 for the others"},
		{Name: "limit", Type: onnx.AttrFloat, Bounds: op.NotNegative, Grid: []any{0.0, 0.5},
			Doc: "clamps gate from above and up on both sides; 0 clamps nothing"},
		{Name: "up_offset", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{0.0, 1.0},
			Doc: "added to up after clamping (0 for SwiGLU and GeGLU, 1 for gpt-oss)"},
	}
}

// AlphaRule allows an alpha other than 1 only for silu.
var AlphaRule = op.Rule{Attribute: "alpha", Bounds: op.Only(1), With: "activation", Is: []string{"silu"}, Not: true}

// Overload names the part of an overload that depends on the gate.
func Overload(s op.Site) string {
	attrs := op.Read[GLU](s.Attributes)
	name := attrs.Activation
	if attrs.Limit > 0 {
		name += "_limit"
	}
	if attrs.UpOffset != 0 {
		name += "_offset"
	}
	return name
}

// Tried reports whether the kernels of GLU and MoE are tested with a site's gate: plain gates, and the clamped gate
// of gpt-oss.
func Tried(s op.Site) bool {
	attrs := op.Read[GLU](s.Attributes)
	alpha, limit, offset := attrs.Alpha, attrs.Limit, attrs.UpOffset
	return alpha == 1 && limit == 0 && offset == 0 || Clamped(s) && alpha != 1 && offset != 0
}

// Clamped reports whether a site has the clamped gate of gpt-oss.
func Clamped(s op.Site) bool {
	attrs := op.Read[GLU](s.Attributes)
	return attrs.Activation == "silu" && attrs.Limit > 0
}

func gluBody(b *op.Body, s op.Site) []*onnx.Value {
	g, u := Limited(b, s, b.Float32("gate_32", b.In[0]), b.Float32("up_32", b.In[1]))
	a := Activated(b, s, g)
	a = b.Rounded("activated_rounded", a, 0)
	if op.Read[GLU](s.Attributes).UpOffset != 0 {
		u = b.Rounded("up_rounded", b.Call("up_shifted", "Add", u, b.Attribute("up_offset")), 0)
	}
	return []*onnx.Value{b.Round("Y", b.Call("product", "Mul", a, u), 0)}
}

// Limited clamps gate and up if the site has a limit.
func Limited(b *op.Body, s op.Site, g, u *onnx.Value) (*onnx.Value, *onnx.Value) {
	if op.Read[GLU](s.Attributes).Limit > 0 {
		limit := b.Attribute("limit")
		g = b.Call("gate_limited", "Min", g, limit)
		u = b.Call("up_limited", "Max", b.Call("up_below", "Min", u, limit), b.Call("minus_limit", "Neg", limit))
	}
	return g, u
}

// Activated applies the activation of a site to g.
func Activated(b *op.Body, s op.Site, g *onnx.Value) *onnx.Value {
	switch op.Read[GLU](s.Attributes).Activation {
	case "silu":
		return b.Call("activated", "Mul", g,
			b.Call("sigmoid", "Sigmoid", b.Call("scaled", "Mul", g, b.Attribute("alpha"))))
	case "gelu", "gelu_tanh":
		// 0.5 * g * (1 + curve), in the order of operations that onnxruntime fuses.
		sum := b.Call("one_plus", "Add", Curve(b, s, g), b.Number("one", 1))
		return b.Call("activated", "Mul", b.Call("gated", "Mul", g, sum), b.Number("half", 0.5))
	case "relu2":
		r := b.Call("positive", "Relu", g)
		return b.Call("activated", "Mul", r, r)
	}
	return b.Call("activated", "Relu", g)
}

// Curve returns the erf or tanh of a GELU.
func Curve(b *op.Body, s op.Site, g *onnx.Value) *onnx.Value {
	if op.Read[GLU](s.Attributes).Activation == "gelu" {
		return b.Call("erf", "Erf", b.Call("ratio", "Div", g, b.Number("sqrt_two", math.Sqrt2)))
	}
	// open: the op Gelu exists from opset 20 only
	cube := b.Call("cube", "Pow", g, b.Number("three", 3))
	inner := b.Call("inner", "Add", g, b.Call("cubic_part", "Mul", b.Number("cubic", 0.044715), cube))
	factor := b.Number("sqrt_two_over_pi", float32(math.Sqrt(2/math.Pi)))
	return b.Call("tanh", "Tanh", b.Call("argument", "Mul", factor, inner))
}
