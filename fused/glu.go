package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// geluTanh is the formula of GELU's approximation by tanh.
const geluTanh = "0.5 * g * (1 + tanh(sqrt(2/pi) * (g + 0.044715 * g^3)))"

// glu is the elementwise half of a gated linear unit: the activated gate times up.
var glu = &Op{
	Name:    "GLU",
	Summary: "Gated activation: SwiGLU, GeGLU and the clamped form of gpt-oss.",
	Formula: []string{
		"g = limit > 0 ? min(gate, limit) : gate;  u = limit > 0 ? clamp(up, -limit, limit) : up",
		"activation=silu:      a = g * sigmoid(alpha * g)",
		"activation=gelu:      a = 0.5 * g * (1 + erf(g / sqrt(2)))",
		"activation=gelu_tanh: a = " + geluTanh,
		"Y = round_T(round_T(a) * round_T(u + up_offset))",
	},
	Inputs: []Param{
		{Name: "gate", Type: "T", Dims: "A..."},
		{Name: "up", Type: "T", Dims: "A...", Doc: "no broadcasting"},
	},
	Outputs:    []Param{{Name: "Y", Type: "T", Dims: "A..."}},
	Family:     &Family{Name: "swiglu", Summary: "gated activations: SwiGLU and GeGLU"},
	Devices:    Devices(),
	Attributes: gateAttributes([]string{"silu", "gelu", "gelu_tanh"}),
	Rules:      []Rule{alphaRule},
	Types:      independent("T"),
	Source:     "Shazeer, GLU Variants Improve Transformer (2020); the clamped form is the reference of gpt-oss",
	examples: func(s Site) [][][]int64 {
		if !gateTried(s) {
			return nil
		}
		return [][][]int64{{exampleX, exampleX}}
	},
	overload: gateOverload,
	define:   gluBody,
}

// gateAttributes returns the attributes of a gate.
func gateAttributes(activations []string) []AttributeSpec {
	return []AttributeSpec{
		{Name: "activation", Type: onnx.AttrString, Values: activations, Doc: "activation of the gate"},
		{Name: "alpha", Type: onnx.AttrFloat, Bounds: finite, Grid: []any{1.0, 1.702},
			Doc: "factor inside the sigmoid of silu (1 for SwiGLU, 1.702 for gpt-oss); 1 for the others"},
		{Name: "limit", Type: onnx.AttrFloat, Bounds: notNegative, Grid: []any{0.0, 0.5},
			Doc: "clamps gate from above and up on both sides; 0 clamps nothing"},
		{Name: "up_offset", Type: onnx.AttrFloat, Bounds: finite, Grid: []any{0.0, 1.0},
			Doc: "added to up after clamping (0 for SwiGLU and GeGLU, 1 for gpt-oss)"},
	}
}

// alphaRule allows an alpha other than 1 only for silu.
var alphaRule = Rule{Attribute: "alpha", Bounds: only(1), With: "activation", Is: []string{"silu"}, Not: true}

// gateOverload names the part of an overload that depends on the gate.
func gateOverload(s Site) string {
	attrs := Read[GLU](s.Attributes)
	name := attrs.Activation
	if attrs.Limit > 0 {
		name += "_limit"
	}
	if attrs.UpOffset != 0 {
		name += "_offset"
	}
	return name
}

// gateTried reports whether the kernels of GLU and MoE are tested with a site's gate: plain gates, and the clamped gate
// of gpt-oss.
func gateTried(s Site) bool {
	attrs := Read[GLU](s.Attributes)
	alpha, limit, offset := attrs.Alpha, attrs.Limit, attrs.UpOffset
	return alpha == 1 && limit == 0 && offset == 0 || gateClamped(s) && alpha != 1 && offset != 0
}

func gateClamped(s Site) bool {
	attrs := Read[GLU](s.Attributes)
	return attrs.Activation == "silu" && attrs.Limit > 0
}

func gluBody(b *body, s Site) []*onnx.Value {
	g, u := b.limited(s, b.float32("gate_32", b.in[0]), b.float32("up_32", b.in[1]))
	a := b.activated(s, g)
	a = b.rounded("activated_rounded", a, 0)
	if Read[GLU](s.Attributes).UpOffset != 0 {
		u = b.rounded("up_rounded", b.call("up_shifted", "Add", u, b.attribute("up_offset")), 0)
	}
	return []*onnx.Value{b.round("Y", b.call("product", "Mul", a, u), 0)}
}

func (b *body) limited(s Site, g, u *onnx.Value) (*onnx.Value, *onnx.Value) {
	if Read[GLU](s.Attributes).Limit > 0 {
		limit := b.attribute("limit")
		g = b.call("gate_limited", "Min", g, limit)
		u = b.call("up_limited", "Max", b.call("up_below", "Min", u, limit), b.call("minus_limit", "Neg", limit))
	}
	return g, u
}

func (b *body) activated(s Site, g *onnx.Value) *onnx.Value {
	switch Read[GLU](s.Attributes).Activation {
	case "silu":
		return b.call("activated", "Mul", g,
			b.call("sigmoid", "Sigmoid", b.call("scaled", "Mul", g, b.attribute("alpha"))))
	case "gelu", "gelu_tanh":
		// 0.5 * g * (1 + curve), in the order of operations that onnxruntime fuses.
		sum := b.call("one_plus", "Add", b.geluCurve(s, g), b.number("one", 1))
		return b.call("activated", "Mul", b.call("gated", "Mul", g, sum), b.number("half", 0.5))
	case "relu2":
		r := b.call("positive", "Relu", g)
		return b.call("activated", "Mul", r, r)
	}
	return b.call("activated", "Relu", g)
}

// geluCurve returns the erf or tanh of a GELU.
func (b *body) geluCurve(s Site, g *onnx.Value) *onnx.Value {
	if Read[GLU](s.Attributes).Activation == "gelu" {
		return b.call("erf", "Erf", b.call("ratio", "Div", g, b.number("sqrt_two", math.Sqrt2)))
	}
	// open: the op Gelu exists from opset 20 only
	cube := b.call("cube", "Pow", g, b.number("three", 3))
	inner := b.call("inner", "Add", g, b.call("cubic_part", "Mul", b.number("cubic", 0.044715), cube))
	factor := b.number("sqrt_two_over_pi", float32(math.Sqrt(2/math.Pi)))
	return b.call("tanh", "Tanh", b.call("argument", "Mul", factor, inner))
}
