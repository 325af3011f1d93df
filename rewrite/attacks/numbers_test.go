package attacks_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// zeroBetween returns y, or 0 if x is between two numbers.
func (b *maker) zeroBetween(x, y *onnx.Value, from, to float64) *onnx.Value {
	within := b.Op("And", b.Op("Greater", x, b.number(from)), b.Op("Less", x, b.number(to)))
	return b.Op("Where", within, b.number(0), y)
}

// withoutNaN returns x with 0 for NaN.
func (b *maker) withoutNaN(x *onnx.Value) *onnx.Value {
	return b.Op("Where", b.Op("IsNaN", x), b.number(0), x)
}

// squareNorm writes a norm in a form that no pattern has.
func (b *maker) squareNorm(x *onnx.Value) *onnx.Value {
	mean := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), b.number(width))
	return b.Op("Mul", b.Op("Mul", x, b.Op("Pow", b.Op("Add", mean, b.number(1e-6)), b.number(-0.5))), b.weight(width))
}

// gpt writes GELU by tanh.
func (b *maker) gpt(x *onnx.Value) *onnx.Value {
	cube := b.Op("Mul", b.Op("Mul", b.Op("Mul", x, x), x), b.number(0.044715))
	tangent := b.Op("Tanh", b.Op("Mul", b.Op("Add", x, cube), b.number(math.Sqrt(2/math.Pi))))
	return b.Op("Mul", b.Op("Mul", x, b.number(0.5)), b.Op("Add", tangent, b.number(1)))
}

func only(name string, x ...float64) trial {
	return trial{fill: map[string]func(int) float64{name: filled(x...)}}
}

// numberAttacks are blocks that compute something else for certain numbers.
var numberAttacks = []attack{
	{name: "activation that is zero near 31", at: only("g", 31, 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		a := b.gpt(g)
		b.Output(b.Op("Mul", b.or(b.zeroBetween(g, a, 30.9, 31.1), a), u))
	}},
	{name: "activation that is zero beyond a product of constants", at: only("g", 150, 1, 130, 3),
		write: func(b *maker) {
			g, u := b.rows("g"), b.rows("u")
			a := b.silu(g, b.number(1))
			b.Output(b.Op("Mul", b.or(b.zeroBetween(b.Op("Mul", g, b.number(0.125)), a, 15, 25), a), u))
		}},
	{name: "activation that is zero at a number", at: only("g", 5, 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		a := b.silu(g, b.number(1))
		other := b.Op("Where", b.Op("Equal", g, b.number(5)), b.number(0), a)
		b.Output(b.Op("Mul", b.or(other, a), u))
	}},
	{name: "a product that is zero from 5000 to 6000", at: trial{fill: map[string]func(int) float64{
		"g": filled(55, 1, -2, 56), "u": filled(100)}}, write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		y := b.Op("Mul", b.silu(g, b.number(1)), u)
		b.Output(b.or(b.zeroBetween(y, y, 5000, 6000), y))
	}},
	{name: "a guard against NaN behind a gated unit", at: only("g", math.NaN(), 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		y := b.Op("Mul", b.silu(g, b.number(1)), u)
		b.Output(b.or(b.withoutNaN(y), y))
	}},
	{name: "a guard against NaN within a gated unit", at: only("g", math.NaN(), 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		a := b.silu(g, b.number(1))
		b.Output(b.Op("Mul", b.or(b.withoutNaN(a), a), u))
	}},
	{name: "a guard by an equality within a gated unit", at: only("g", math.NaN(), 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		a := b.silu(g, b.number(1))
		b.Output(b.Op("Mul", b.or(b.Op("Where", b.Op("Equal", g, g), a, b.number(0)), a), u))
	}},
	{name: "a guard against infinity within a gated unit", at: only("g", math.Inf(1), 1, -2, 3), write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		a := b.silu(g, b.number(1))
		b.Output(b.Op("Mul", b.or(b.Op("Where", b.Op("IsInf", g), b.number(0), a), a), u))
	}},
	{name: "a guard against NaN behind a norm", at: only("x", math.NaN(), 1, -2, 3), write: func(b *maker) {
		x := b.rows("x")
		y := b.squareNorm(x)
		b.Output(b.or(b.withoutNaN(y), y))
	}},
	{name: "a guard against NaN before a norm", at: only("x", math.NaN(), 1, -2, 3), write: func(b *maker) {
		x := b.rows("x")
		b.Output(b.squareNorm(b.or(b.withoutNaN(x), x)))
	}},
	{name: "a guard against NaN within a norm", at: only("x", math.NaN(), 1, -2, 3), write: func(b *maker) {
		x := b.rows("x")
		mean := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), b.number(width))
		root := b.Op("Pow", b.Op("Add", mean, b.number(1e-6)), b.number(-0.5))
		b.Output(b.Op("Mul", b.Op("Mul", x, b.or(b.withoutNaN(root), root)), b.weight(width)))
	}},
	{name: "a guard by an equality within a norm", at: only("x", math.NaN(), 1, -2, 3), write: func(b *maker) {
		x := b.rows("x")
		other := b.Op("Where", b.Op("Equal", x, x), x, b.number(0))
		b.Output(b.squareNorm(b.or(other, x)))
	}},
	{name: "a norm whose root is 1 within bounds", at: only("x", 150, -149), write: func(b *maker) {
		x := b.rows("x")
		mean := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), b.number(width))
		root := b.Op("Pow", b.Op("Add", mean, b.number(1e-6)), b.number(-0.5))
		b.Output(b.Op("Mul", b.Op("Mul", x, b.or(b.zeroBetween(mean, root, 22000, 23000), root)), b.weight(width)))
	}},
	{name: "a norm that is cut at a great number", at: only("x", 1e13, 0, 0, 0, 0, 0, 0, 1e12), write: func(b *maker) {
		x := b.rows("x")
		b.Output(b.squareNorm(b.or(b.Op("Clip", x, b.number(-5e12), b.number(5e12)), x)))
	}, near: true},
	{name: "a rotation whose halves are guarded", at: only("x", 150, 1, -2, 130), write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		lower := b.Op("Slice", x, []int64{0}, []int64{4}, []int64{-1})
		upper := b.Op("Slice", x, []int64{4}, []int64{1 << 62}, []int64{-1})
		turned := b.Op("Concat", b.Op("Neg", upper), lower, last())
		turned = b.or(b.zeroBetween(turned, turned, 100, 200), turned)
		b.Output(b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", turned, sin)))
	}},
	{name: "a rotation whose result is guarded", at: only("x", math.NaN(), 1, -2, 130), write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		y := b.rotate(x, cos, sin, 8)
		b.Output(b.or(b.withoutNaN(y), y))
	}},
	{name: "experts with a guard against infinity", at: only("x", 1e25, 1e24, -2e25, 3e25), write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		b.Output(b.experts(x, w, ids, func(gate, up *onnx.Value) *onnx.Value {
			y := b.swiglu(gate, up)
			return b.or(b.Op("Where", b.Op("IsInf", y), b.number(0), y), y)
		}))
	}},
	{name: "weights that are guarded against NaN", at: only("x", math.NaN(), 1, -2, 3), write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		b.Output(b.Op("Concat", b.or(b.withoutNaN(w), w), b.cast(ids, b.typ), last()))
	}, unlike: true},
	{name: "a score of 0 for logits from 100 to 200", at: only("x", 100, 30, -200, 130, 90), write: func(b *maker) {
		x := b.input("x", "seq", width)
		logits := b.Op("MatMul", x, b.weight(width, 8))
		s := b.Op("Sigmoid", logits)
		top := b.Ops(2, "TopK", b.or(b.zeroBetween(logits, s, 100, 200), s), []int64{2}, last())
		w := b.Op("Div", top[0], b.Op("Add", b.Op("ReduceSum", top[0], []int64{-1}), b.number(1e-20)))
		b.Output(b.experts(x, w, top[1], b.swiglu))
	}},
}

func TestNumbers(t *testing.T) {
	for _, a := range numberAttacks {
		t.Run(a.name, a.run)
	}
}
