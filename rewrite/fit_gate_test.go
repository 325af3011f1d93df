package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// unitOf spells a gated unit of the halves of x.
func unitOf(spell func(b builder, gate, up value) value) func(builder,
	value) value {
	return func(b builder, x value) value {
		halves := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
		return spell(b, halves[0], halves[1])
	}
}

var fittedGates = []fitted{
	{"sigmoid by an exponential", "GLU", unitOf(func(b builder, g, u value) value {
		return b.Op("Div", b.Op("Mul", g, u), b.Op("Add", b.Op("Exp", b.Op("Neg", g)), 1.0))
	})},
	{"sigmoid by tanh", "GLU", unitOf(func(b builder, g, u value) value {
		tanh := b.Op("Tanh", b.Op("Mul", g, 0.5))
		return b.Op("Mul", u, b.Op("Mul", b.Op("Mul", g, 0.5), b.Op("Add", tanh, 1.0)))
	})},
	{"sigmoid by a softmax of two", "GLU", unitOf(func(b builder, g, u value) value {
		two := b.Op("Concat", b.Op("Unsqueeze", g, []int64{-1}), b.Op("Unsqueeze", b.Op("Sub", g, g), []int64{-1}),
			onnx.IntAttr("axis", -1))
		s := b.Op("Gather", b.Op("Softmax", two, onnx.IntAttr("axis", -1)), 0, onnx.IntAttr("axis", -1))
		return b.Op("Mul", b.Op("Mul", g, s), u)
	})},
	{"product by Einsum", "GLU", unitOf(func(b builder, g, u value) value {
		return b.Op("Einsum", g, b.Op("Sigmoid", g), u, equation("bsc,bsc,bsc->bsc"))
	})},
	{"logarithm of a sigmoid", "GLU", unitOf(func(b builder, g, u value) value {
		return b.Op("Mul", b.Op("Mul", g, b.Op("Exp", b.Op("Neg", b.Op("Softplus", b.Op("Neg", g))))), u)
	})},
	{"gelu of shifted parts", "GLU", unitOf(func(b builder, g, u value) value {
		erf := b.Op("Erf", b.Op("Mul", g, 0.70710678))
		half := b.Op("Mul", g, 0.5)
		return b.Op("Mul", u, b.Op("Add", half, b.Op("Mul", half, erf)))
	})},
	{"clamped by Where", "GLU", unitOf(func(b builder, g, u value) value {
		g = b.Op("Where", b.Op("Greater", g, 2.0), 2.0, g)
		u = b.Op("Where", b.Op("Greater", u, 2.0), 2.0, b.Op("Where", b.Op("Less", u, -2.0), -2.0, u))
		s := b.Op("Reciprocal", b.Op("Add", b.Op("Exp", b.Op("Mul", g, -1.702)), 1.0))
		return b.Op("Mul", b.Op("Mul", g, s), b.Op("Add", u, 1.0))
	})},
	{"softened gate", "", unitOf(func(b builder, g, u value) value {
		return b.Op("Mul", b.Op("Mul", g, b.Op("Tanh", g)), u)
	})},
	{"clamped activation", "", unitOf(func(b builder, g, u value) value {
		s := b.Op("Div", g, b.Op("Add", b.Op("Exp", b.Op("Neg", g)), 1.0))
		return b.Op("Mul", b.Op("Clip", s, -0.125), u)
	})},
	{"another factor for each channel", "", unitOf(func(b builder, g, u value) value {
		s := b.Op("Add", b.Op("Exp", b.Op("Mul", g, vectorOf(b, channels/2))), 1.0)
		return b.Op("Mul", b.Op("Div", g, s), u)
	})},
	{"halved", "", unitOf(func(b builder, g, u value) value {
		s := b.Op("Add", b.Op("Exp", b.Op("Neg", g)), 1.0)
		return b.Op("Mul", b.Op("Div", b.Op("Mul", g, 0.5), s), u)
	})},
}

func TestFittedGates(t *testing.T) {
	for _, test := range fittedGates {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}

// silu returns SiLU(gate) * up.
func silu(b builder, gate, up value) value {
	return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), up)
}

// sequenceGates are units whose gate and up are elements of a sequence.
var sequenceGates = []fitted{
	{"parts of given sizes", "GLU", func(b builder, x value) value {
		list := b.Op("SplitToSequence", x, []int64{channels / 2, channels / 2}, onnx.IntAttr("axis", -1))
		return silu(b, b.Op("SequenceAt", list, 0), b.Op("SequenceAt", list, 1))
	}},
	{"parts of one size, from the end", "GLU", func(b builder, x value) value {
		list := b.Op("SplitToSequence", x, channels/2, onnx.IntAttr("axis", 2))
		return silu(b, b.Op("SequenceAt", list, -1), b.Op("SequenceAt", list, -2))
	}},
	{"slices without their axis", "GLU", func(b builder, x value) value {
		pairs := b.Op("Reshape", x, []int64{0, 0, 2, channels / 2})
		list := b.Op("SplitToSequence", pairs, onnx.IntAttr("axis", -2), onnx.IntAttr("keepdims", 0))
		return silu(b, b.Op("SequenceAt", list, 0), b.Op("SequenceAt", list, 1))
	}},
	{"slices with their axis", "GLU", func(b builder, x value) value {
		pairs := b.Op("Reshape", x, []int64{0, 0, 2, channels / 2})
		list := b.Op("SplitToSequence", pairs, onnx.IntAttr("axis", 2))
		return silu(b, b.Op("SequenceAt", list, -2), b.Op("SequenceAt", list, -1))
	}},
	{"two products", "GLU", func(b builder, x value) value {
		list := b.Op("SequenceConstruct", b.Op("MatMul", x, signs(b, half)), x)
		return silu(b, b.Op("SequenceAt", list, 1), b.Op("SequenceAt", list, -2))
	}},
	{"a spelling that is fitted", "GLU", func(b builder, x value) value {
		list := b.Op("SplitToSequence", x, []int64{channels / 2, channels / 2}, onnx.IntAttr("axis", -1))
		gate, up := b.Op("SequenceAt", list, 0), b.Op("SequenceAt", list, 1)
		return b.Op("Div", b.Op("Mul", gate, up), b.Op("Add", b.Op("Exp", b.Op("Neg", gate)), 1.0))
	}},
	{"parts of unequal sizes", "", func(b builder, x value) value {
		list := b.Op("SplitToSequence", x, []int64{1, channels - 1}, onnx.IntAttr("axis", -1))
		return silu(b, b.Op("SequenceAt", list, 0), b.Op("SequenceAt", list, 1))
	}},
}

func TestGatesOfSequences(t *testing.T) {
	for _, test := range sequenceGates {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}
