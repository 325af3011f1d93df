package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// rotated spells a rotation of x by angles, one for each pair of channels.
func rotated(spell func(b builder, x, cos, sin value) value) func(builder,
	value) value {
	return func(b builder, x value) value {
		typ, _ := x.Type()
		angles := b.Graph.AddInput("angles", onnx.Type{DataType: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{typ.Dims[1], {Value: channels / 2}}})
		return spell(b, x, b.Op("Cos", angles), b.Op("Sin", angles))
	}
}

// signs returns a matrix that moves each channel to another one, perhaps negated.
func signs(b builder, of func(i int) (j int, sign float32)) value {
	m := make([]float32, channels*channels)
	for i := range channels {
		j, sign := of(i)
		m[i*channels+j] = sign
	}
	return b.Floats([]int64{channels, channels}, m...)
}

// half returns where rotate_half moves a channel, and the sign.
func half(i int) (j int, sign float32) {
	if i < channels/2 {
		return i + channels/2, 1
	}
	return i - channels/2, -1
}

func twice(b builder, v value) value {
	return b.Op("Concat", v, v, onnx.IntAttr("axis", -1))
}

// lastOf slices the last axis.
func lastOf(b builder, x value, from, to int64) value {
	return b.Op("Slice", x, []int64{from}, []int64{to}, []int64{-1})
}

// givenTables spells a rotation of x by tables that are inputs.
func givenTables(spell func(b builder, x, cos, sin value) value) func(builder,
	value) value {
	return func(b builder, x value) value {
		typ, _ := x.Type()
		given := func(name string) value {
			return b.Graph.AddInput(name, onnx.Type{DataType: onnx.Float, HasShape: true,
				Dims: []onnx.Dim{typ.Dims[1], {Value: channels / 2}}})
		}
		return spell(b, x, given("cos"), given("sin"))
	}
}

// opposite rotates halves by the opposite angle.
func opposite(b builder, x, cos, sin value) value {
	return oppositeHalves(b, x, cos, sin, channels/2)
}

func oppositeHalves(b builder, x, cos, sin value, half int64) value {
	first, second := lastOf(b, x, 0, half), lastOf(b, x, half, 2*half)
	return b.Op("Concat", b.Op("Add", b.Op("Mul", first, cos), b.Op("Mul", second, sin)),
		b.Op("Sub", b.Op("Mul", second, cos), b.Op("Mul", first, sin)), onnx.IntAttr("axis", -1))
}

// conjugate multiplies pairs with the conjugate of complex numbers.
func conjugate(b builder, x, cos, sin value) value {
	y := conjugatePairs(b, b.Op("Reshape", x, []int64{0, 0, channels / 2, 2}), cos, sin)
	return b.Op("Reshape", y, []int64{0, 0, channels})
}

// packedHeads does the same for three heads, whose channels are not the last axis of any tensor before the rotation.
func packedHeads(b builder, x, cos, sin value) value {
	const heads = 3
	table := func(v value) value {
		return b.Op("Unsqueeze", lastOf(b, v, 0, channels/heads/2), []int64{1})
	}
	y := conjugatePairs(b, b.Op("Reshape", x, []int64{0, 0, heads, -1, 2}), table(cos), table(sin))
	return b.Op("Reshape", y, []int64{0, 0, heads, channels / heads})
}

func conjugatePairs(b builder, pairs, cos, sin value) value {
	re, im := b.Op("Gather", pairs, 0, onnx.IntAttr("axis", -1)), b.Op("Gather", pairs, 1, onnx.IntAttr("axis", -1))
	re, im = b.Op("Add", b.Op("Mul", re, cos), b.Op("Mul", im, sin)),
		b.Op("Sub", b.Op("Mul", im, cos), b.Op("Mul", re, sin))
	re, im = b.Op("Unsqueeze", re, []int64{-1}), b.Op("Unsqueeze", im, []int64{-1})
	return b.Op("Concat", re, im, onnx.IntAttr("axis", -1))
}

var fittedRotations = []fitted{
	{"a matrix", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("MatMul", x, signs(b, half))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"Einsum", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("Einsum", x, signs(b, half), twice(b, sin), equation("bsc,cd,sd->bsd"))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), turned)
	})},
	{"a common factor", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		tangent := b.Op("Div", twice(b, sin), twice(b, cos))
		turned := b.Op("MatMul", x, signs(b, half))
		return b.Op("Mul", twice(b, cos), b.Op("Add", x, b.Op("Mul", turned, tangent)))
	})},
	{"roll", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		h := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
		rolled := b.Op("Concat", h[1], h[0], onnx.IntAttr("axis", -1))
		table := b.Op("Mul", twice(b, sin), b.Floats([]int64{channels}, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", rolled, table))
	})},
	{"pairs", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		last := func(v value) value { return b.Op("Unsqueeze", v, []int64{-1}) }
		row := func(v, w value) value {
			return last(b.Op("Concat", last(v), last(w), onnx.IntAttr("axis", -1)))
		}
		matrices := b.Op("Concat", row(cos, b.Op("Neg", sin)), row(sin, cos), onnx.IntAttr("axis", -1))
		pairs := b.Op("Reshape", x, []int64{0, 0, channels / 2, 2})
		y := b.Op("Einsum", pairs, matrices, equation("bsci,scio->bsco"))
		return b.Op("Reshape", y, []int64{0, 0, channels})
	})},
	{"opposite angle", "RotaryEmbedding", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("MatMul", x, signs(b, half))
		return b.Op("Sub", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"opposite angle, halves", "RotaryEmbedding", rotated(opposite)},
	{"opposite angle, pairs", "RotaryEmbedding", rotated(conjugate)},
	{"opposite angle, part of the channels", "RotaryEmbedding", rotated(func(b builder,
		x, cos, sin value) value {
		y := oppositeHalves(b, lastOf(b, x, 0, 8), lastOf(b, cos, 0, 4), lastOf(b, sin, 0, 4), 4)
		return b.Op("Concat", y, lastOf(b, x, 8, channels), onnx.IntAttr("axis", -1))
	})},
	{"opposite angle, given tables", "RotaryEmbedding", givenTables(opposite)},
	{"opposite angle, given tables of pairs", "RotaryEmbedding", givenTables(conjugate)},
	{"opposite angle, packed heads", "RotaryEmbedding", rotated(packedHeads)},
	{"opposite angle, packed heads, given tables", "RotaryEmbedding", givenTables(packedHeads)},
	{"opposite angle, packed heads, constant tables", "RotaryEmbedding", func(b builder,
		x value) value {
		cos := b.Floats([]int64{1, channels / 2}, 0.8, 0.28, 0, 1, 1, 1)
		return packedHeads(b, x, cos, b.Floats([]int64{1, channels / 2}, 0.6, 0.96, 1, 0, 0, 0))
	}},
	{"reflected, packed heads, given tables", "", givenTables(func(b builder,
		x, cos, sin value) value {
		pairs := b.Op("Reshape", x, []int64{0, 0, 3, 2, 2})
		turned := b.Op("Gather", pairs, []int64{1, 0}, onnx.IntAttr("axis", -1))
		table := func(v value) value { return b.Op("Unsqueeze", lastOf(b, v, 0, 2), []int64{1, -1}) }
		y := b.Op("Sub", b.Op("Mul", pairs, table(cos)), b.Op("Mul", turned, table(sin)))
		return b.Op("Reshape", y, []int64{0, 0, 3, 4})
	})},
	{"opposite angle, given tables of all channels", "RotaryEmbedding", givenTables(func(b builder,
		x, cos, sin value) value {
		turned := b.Op("Concat", lastOf(b, x, 6, 12), b.Op("Neg", lastOf(b, x, 0, 6)), onnx.IntAttr("axis", -1))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"opposite angle in one half, given tables", "", givenTables(func(b builder,
		x, cos, sin value) value {
		turned := b.Op("Concat", lastOf(b, x, 6, 12), lastOf(b, x, 0, 6), onnx.IntAttr("axis", -1))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"opposite angle, halves of the results exchanged", "", givenTables(func(b builder,
		x, cos, sin value) value {
		first, second := lastOf(b, x, 0, 6), lastOf(b, x, 6, 12)
		return b.Op("Concat", b.Op("Sub", b.Op("Mul", second, cos), b.Op("Mul", first, sin)),
			b.Op("Add", b.Op("Mul", first, cos), b.Op("Mul", second, sin)), onnx.IntAttr("axis", -1))
	})},
	{"reflected", "", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("MatMul", x, signs(b, func(i int) (int, float32) { return (i + channels/2) % channels, 1 }))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"other pairs", "", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("MatMul", x, signs(b, func(i int) (int, float32) {
			return channels - 1 - i, float32(1 - 2*(i/(channels/2)))
		}))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"cosines of other pairs", "", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("MatMul", x, signs(b, half))
		first := b.Op("Slice", cos, []int64{0}, []int64{1}, []int64{0})
		return b.Op("Add", b.Op("Mul", x, twice(b, first)), b.Op("Mul", turned, twice(b, sin)))
	})},
	{"bent", "", rotated(func(b builder, x, cos, sin value) value {
		turned := b.Op("Clip", b.Op("MatMul", x, signs(b, half)), -1e3, 1e3)
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", turned, twice(b, sin)))
	})},
}

func TestFittedRotations(t *testing.T) {
	for _, test := range fittedRotations {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}
