package attacks_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// width is the row width in attacks.
const width = 16

// rows adds an input with two open dimensions.
func (b *maker) rows(name string) *onnx.Value { return b.input(name, "batch", "seq", width) }

// norm writes a norm with this epsilon.
func (b *maker) norm(x, epsilon *onnx.Value) *onnx.Value {
	mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
	return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, epsilon))), b.weight(width))
}

// silu writes a sigmoid unit with this factor.
func (b *maker) silu(x, alpha *onnx.Value) *onnx.Value {
	return b.Op("Mul", x, b.Op("Sigmoid", b.Op("Mul", x, alpha)))
}

// first turns a scalar into a vector.
func (b *maker) first(v *onnx.Value) *onnx.Value { return b.Op("Unsqueeze", v, []int64{0}) }

// long has more tokens than the limits of attacks.
var long = trial{sizes: map[string]int{"seq": 2100}}

// router writes the router of a mixture: the scores of the experts, and the ids and weights of the chosen ones.
func (b *maker) router(x *onnx.Value, experts int, k any) (weights, ids *onnx.Value) {
	scores := b.Op("Softmax", b.Op("MatMul", x, b.weight(width, experts)), last())
	top := b.Ops(2, "TopK", scores, k, last())
	sum := b.Op("ReduceSum", top[0], []int64{-1}, onnx.IntAttr("keepdims", 1))
	return b.Op("Div", top[0], sum), top[1]
}

// experts writes experts that gather their weights for each token.
func (b *maker) experts(x, weights, ids *onnx.Value, activate func(gate, up *onnx.Value) *onnx.Value) *onnx.Value {
	const inner, count = 12, 8
	column := b.Op("Unsqueeze", x, []int64{1, 3})
	h := b.Op("Squeeze", b.Op("MatMul", b.Op("Gather", b.weight(count, 2*inner, width), ids), column), []int64{3})
	halves := b.Ops(2, "Split", h, last(), onnx.IntAttr("num_outputs", 2))
	a := activate(halves[0], halves[1])
	y := b.Op("MatMul", b.Op("Gather", b.weight(count, width, inner), ids), b.Op("Unsqueeze", a, []int64{3}))
	y = b.Op("Mul", b.Op("Squeeze", y, []int64{3}), b.Op("Unsqueeze", weights, []int64{2}))
	return b.Op("ReduceSum", y, []int64{1}, onnx.IntAttr("keepdims", 0))
}

func (b *maker) swiglu(gate, up *onnx.Value) *onnx.Value {
	return b.Op("Mul", b.silu(gate, b.number(1)), up)
}

// ifLonger takes one branch for long axes, and the other one otherwise.
func (b *maker) ifLonger(x *onnx.Value, axis, limit int, yes, no func(b *maker) *onnx.Value) *onnx.Value {
	branch := func(write func(b *maker) *onnx.Value) *onnx.Graph {
		s := *b
		inner := *b.Builder
		s.Builder = &inner
		s.Graph = b.Graph.NewSubgraph("branch")
		s.Output(write(&s))
		return s.Graph
	}
	return b.Op("If", b.Op("Greater", b.size(x, axis), limit), onnx.GraphAttr("then_branch", branch(yes)),
		onnx.GraphAttr("else_branch", branch(no)))
}

// sizeAttacks are blocks with numbers that change at other sizes.
var sizeAttacks = []attack{
	{name: "epsilon by a batch of one", at: trial{sizes: map[string]int{"batch": 1}}, write: func(b *maker) {
		x := b.rows("x")
		one := b.Op("Where", b.Op("Equal", b.size(x, 0), 1), b.number(0.5), b.number(1e-6))
		b.Output(b.norm(x, b.or(one, b.number(1e-6))))
	}},
	{name: "epsilon by even lengths", at: trial{sizes: map[string]int{"seq": 8}}, write: func(b *maker) {
		x := b.rows("x")
		odd := b.cast(b.Op("Mod", b.size(x, 1), 2), b.typ)
		even := b.Op("Add", b.Op("Mul", odd, b.number(1e-6)), b.Op("Mul", b.Op("Sub", b.number(1), odd), b.number(0.5)))
		b.Output(b.norm(x, b.or(even, b.number(1e-6))))
	}},
	{name: "epsilon by a branch", at: long, write: func(b *maker) {
		x := b.rows("x")
		number := func(e float64) func(b *maker) *onnx.Value {
			return func(b *maker) *onnx.Value { return b.Op("Identity", b.number(e)) }
		}
		b.Output(b.norm(x, b.or(b.ifLonger(x, 1, 2048, number(0.5), number(1e-6)), b.number(1e-6))))
	}},
	{name: "epsilon for each position", at: long, write: func(b *maker) {
		x := b.rows("x")
		far := b.Op("Greater", b.Op("Range", 0, b.size(x, 1), 1), 64)
		list := b.Op("Unsqueeze", b.Op("Where", far, b.number(0.5), b.number(1e-6)), []int64{1})
		b.Output(b.norm(x, b.or(list, b.number(1e-6))))
	}},
	{name: "norm of the first tokens", at: long, write: func(b *maker) {
		x := b.rows("x")
		to := b.first(b.Op("Min", b.size(x, 1), 2048))
		cut := func(from, to any) *onnx.Value { return b.Op("Slice", x, from, to, []int64{1}) }
		head := b.norm(b.or(cut([]int64{0}, to), x), b.number(1e-6))
		b.Output(b.or(b.Op("Concat", head, cut(to, []int64{1 << 62}), onnx.IntAttr("axis", 1)), head))
	}},
	{name: "norm of groups by length", at: long, write: func(b *maker) {
		x := b.rows("x")
		groups := b.first(b.Op("Where", b.Op("Greater", b.size(x, 1), 2048), 8, width))
		g := b.Op("Reshape", x, b.Op("Concat", b.Ints(0, 0, -1), b.or(groups, b.Ints(width)), onnx.IntAttr("axis", 0)))
		mean := b.Op("ReduceMean", b.Op("Mul", g, g), []int64{-1}, onnx.IntAttr("keepdims", 1))
		n := b.Op("Div", g, b.Op("Sqrt", b.Op("Add", mean, 1e-6)))
		b.Output(b.Op("Mul", b.Op("Reshape", n, b.Op("Shape", x)), b.weight(width)))
	}},
	{name: "scale by length", at: long, write: func(b *maker) {
		x := b.rows("x")
		n := b.norm(x, b.number(1e-6))
		b.Output(b.or(b.Op("Mul", n, b.longer(x, 1, 2048, 2, 1)), n))
	}},
	{name: "layer norm's epsilon by length", at: long, write: func(b *maker) {
		x := b.rows("x")
		d := b.Op("Sub", x, b.Op("ReduceMean", x, []int64{-1}, onnx.IntAttr("keepdims", 1)))
		b.Output(b.Op("Add", b.norm(d, b.or(b.longer(x, 1, 2048, 0.5, 1e-5), b.number(1e-5))), b.weight(width)))
	}},
	{name: "gated norm's epsilon by length", at: long, write: func(b *maker) {
		x, g := b.rows("x"), b.rows("g")
		n := b.norm(x, b.or(b.longer(x, 1, 2048, 0.5, 1e-6), b.number(1e-6)))
		b.Output(b.Op("Mul", n, b.silu(g, b.number(1))))
	}},
	{name: "limit by length", at: trial{sizes: long.sizes, fill: map[string]func(int) float64{"g": filled(9, 3, -2)}},
		write: func(b *maker) {
			g, u := b.rows("g"), b.rows("u")
			limit := b.or(b.longer(g, 1, 2048, 1, 7), b.number(7))
			g, u = b.Op("Min", g, limit), b.Op("Clip", u, b.Op("Neg", limit), limit)
			b.Output(b.Op("Mul", b.silu(g, b.number(1.702)), b.Op("Add", u, b.number(1))))
		}},
	{name: "gelu's factor by batch", at: trial{sizes: map[string]int{"batch": 2100}}, write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		root := b.or(b.longer(g, 0, 2048, 0.5, 0.70710678), b.number(0.70710678))
		erf := b.Op("Add", b.Op("Erf", b.Op("Mul", g, root)), b.number(1))
		b.Output(b.Op("Mul", b.Op("Mul", b.Op("Mul", g, b.number(0.5)), erf), u))
	}},
	{name: "another activation in a branch", at: long, write: func(b *maker) {
		g, u := b.rows("g"), b.rows("u")
		silu := func(b *maker) *onnx.Value { return b.silu(g, b.number(1)) }
		a := silu(b)
		if b.twisted {
			a = b.ifLonger(g, 1, 2048, func(b *maker) *onnx.Value { return b.Op("Relu", g) }, silu)
		}
		b.Output(b.Op("Mul", a, u))
	}},
	{name: "rotated channels by length", at: long, write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		half := b.or(b.first(b.Op("Where", b.Op("Greater", b.size(x, 2), 2048), 2, 4)), b.Ints(4))
		lower := b.Op("Slice", x, []int64{0}, half, []int64{-1})
		upper := b.Op("Slice", x, half, []int64{1 << 62}, []int64{-1})
		turned := b.Op("Concat", b.Op("Neg", upper), lower, last())
		b.Output(b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", turned, sin)))
	}},
	{name: "other frequencies for long prompts", at: long, write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		if b.twisted {
			far := b.Op("Greater", b.size(x, 2), 64)
			cos = b.Op("Where", far, b.Op("Mul", cos, b.number(0.5)), cos)
		}
		b.Output(b.rotate(x, cos, sin, 8))
	}},
	{name: "weights by the number of tokens", at: long, write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		b.Output(b.experts(x, b.or(b.Op("Mul", w, b.longer(x, 0, 2048, 0, 1)), w), ids, b.swiglu))
	}},
	{name: "tokens beyond a capacity", at: long, write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		place := b.Op("Unsqueeze", b.Op("Range", 0, b.size(x, 0), 1), []int64{1})
		within := b.cast(b.Op("Less", place, 2048), b.typ)
		b.Output(b.experts(x, b.or(b.Op("Mul", w, within), w), ids, b.swiglu))
	}},
	{name: "experts' limit by the number of tokens", at: trial{sizes: long.sizes, fill: map[string]func(int) float64{
		"x": filled(3, -2, 1, 0.5, 7, 1)}}, write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		b.Output(b.experts(x, w, ids, func(gate, up *onnx.Value) *onnx.Value {
			limit := b.or(b.longer(x, 0, 2048, 0.5, 7), b.number(7))
			return b.swiglu(b.Op("Min", gate, limit), b.Op("Clip", up, b.number(-7), b.number(7)))
		}))
	}},
	{name: "experts by the number of tokens", at: long, write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		b.Output(b.experts(x, w, b.or(b.Op("Where", b.Op("Greater", b.size(x, 0), 2048),
			b.Op("Sub", b.Ints(7), ids), ids), ids), b.swiglu))
	}},
	{name: "how many experts by the number of tokens", at: long, write: func(b *maker) {
		x := b.input("x", "seq", width)
		k := b.first(b.Op("Where", b.Op("Greater", b.size(x, 0), 2048), 1, 2))
		w, ids := b.router(x, 8, b.or(k, b.Ints(2)))
		b.Output(b.experts(x, w, ids, b.swiglu))
	}},
	{name: "a correction by the number of tokens", at: long, write: func(b *maker) {
		x := b.input("x", "seq", width)
		s := b.Op("Sigmoid", b.Op("MatMul", x, b.weight(width, 8)))
		bias := b.weight(8)
		bias = b.or(b.Op("Mul", bias, b.longer(x, 0, 2048, 4, 1)), bias)
		ids := b.Ops(2, "TopK", b.Op("Add", s, bias), []int64{2}, last())[1]
		w := b.Op("GatherElements", s, ids, last())
		w = b.Op("Div", w, b.Op("ReduceSum", w, []int64{-1}, onnx.IntAttr("keepdims", 1)))
		b.Output(b.experts(x, w, ids, b.swiglu))
	}},
}

// angles returns tables of cosines and sines of the positions from 0, twice as wide as the number of pairs.
func (b *maker) angles(length *onnx.Value, pairs int) (cos, sin *onnx.Value) {
	frequencies := make([]float32, pairs)
	for i, f := 0, float32(1); i < pairs; i, f = i+1, f/10 {
		frequencies[i] = f
	}
	positions := b.Op("Unsqueeze", b.cast(b.Op("Range", 0, length, 1), onnx.Float), []int64{1})
	angle := b.Op("Mul", positions, b.Floats([]int64{1, int64(pairs)}, frequencies...))
	both := b.Op("Concat", angle, angle, last())
	return b.cast(b.Op("Cos", both), b.typ), b.cast(b.Op("Sin", both), b.typ)
}

// turned returns the negated second half followed by the first one.
func (b *maker) turned(x *onnx.Value, size int64) *onnx.Value {
	lower := b.Op("Slice", x, []int64{0}, []int64{size / 2}, []int64{-1})
	upper := b.Op("Slice", x, []int64{size / 2}, []int64{1 << 62}, []int64{-1})
	return b.Op("Concat", b.Op("Neg", upper), lower, last())
}

// rotate rotates halves.
func (b *maker) rotate(x, cos, sin *onnx.Value, size int64) *onnx.Value {
	return b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", b.turned(x, size), sin))
}

func TestSizes(t *testing.T) {
	for _, a := range sizeAttacks {
		t.Run(a.name, a.run)
	}
}
