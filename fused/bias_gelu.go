package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// biasGELU adds a bias and applies GELU, as between the two products of an encoder's MLP.
var biasGELU = &Op{
	Name:    "BiasGELU",
	Summary: "GELU of a sum with a bias: exact, or approximated by tanh or a sigmoid.",
	Formula: []string{
		"g = round_T(X + bias)",
		"activation=gelu:      Y = round_T(0.5 * g * (1 + erf(g / sqrt(2))))",
		"activation=gelu_tanh: Y = round_T(" + geluTanh + ")",
		"activation=silu:      Y = round_T(g * sigmoid(alpha * g))",
	},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "bias", Type: "T", Dims: "D"},
	},
	Outputs: []Param{{Name: "Y", Type: "T", Dims: "A... D"}},
	Family:  &Family{Name: "gelu", Summary: "GELU with the bias before it"},
	Devices: []Device{CPU, CUDA},
	Attributes: []AttributeSpec{
		{Name: "activation", Type: onnx.AttrString, Values: []string{"silu", "gelu", "gelu_tanh"},
			Doc: "the form of the GELU"},
		{Name: "alpha", Type: onnx.AttrFloat, Bounds: finite, Grid: []any{1.0, 1.702},
			Doc: "factor inside the sigmoid of silu (1.702 for CLIP); 1 for the others"},
	},
	Rules: []Rule{alphaRule},
	Types: independent("T"),
	Source: "Hendrycks and Gimpel, Gaussian Error Linear Units (2016), whose approximation by a sigmoid is silu with " +
		"alpha=1.702",
	examples: func(s Site) [][][]int64 {
		if attrs := Read[BiasGELU](s.Attributes); attrs.Activation != "silu" && attrs.Alpha != 1 {
			return nil
		}
		return [][][]int64{{exampleX, exampleX[2:]}, {{3, 256}, {256}}}
	},
	overload: func(s Site) string { return Read[BiasGELU](s.Attributes).Activation },
	define: func(b *body, s Site) []*onnx.Value {
		g := b.call("g_32", "Add", b.float32("X_32", b.in[0]), b.float32("bias_32", b.in[1]))
		g = b.rounded("g", g, 0)
		if Read[BiasGELU](s.Attributes).Activation == "silu" {
			return []*onnx.Value{b.round("Y", b.activated(s, g), 0)}
		}
		// The half comes first: the product of the greatest numbers with 2 would overflow.
		half := b.call("halved", "Mul", g, b.number("half", 0.5))
		sum := b.call("one_plus", "Add", b.geluCurve(s, g), b.number("one", 1))
		return []*onnx.Value{b.round("Y", b.call("activated", "Mul", half, sum), 0)}
	},
}
