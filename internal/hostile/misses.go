package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

// misses are near misses, in a chain and side by side.
var misses = twice("misses-", []step{
	{"norm-axis", 5, func(b *builder, x value, _ int) value {
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{1})
		return b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6))))
	}},
	{"norm-sum", 6, func(b *builder, x value, _ int) value {
		root := b.Op("Sqrt", b.Op("Add", b.Op("ReduceSum", b.Op("Pow", x, b.number(2)), []int64{-1}), b.number(1e-6)))
		return b.Op("Mul", b.Op("Div", x, root), b.few(0, 0))
	}},
	{"norm-epsilon", 6, func(b *builder, x value, i int) value {
		root := b.Op("Sqrt", b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}))
		root = b.Op("Add", root, b.number(1e-6*float64(i+1)))
		return b.Op("Mul", b.Op("Div", x, root), b.number(float64(i)))
	}},
	{"norm-cube", 5, func(b *builder, x value, _ int) value {
		root := b.Op("Sqrt", b.Op("Add", b.Op("ReduceMean", b.Op("Pow", x, b.number(3)), []int64{-1}), b.number(1e-6)))
		return b.Op("Div", x, root)
	}},
	{"norm-abs", 5, func(b *builder, x value, i int) value {
		root := b.Op("Add", b.Op("ReduceMean", b.Op("Abs", x), []int64{-1}), b.number(1e-6*float64(i%9+1)))
		return b.Op("Mul", b.Op("Div", x, root), b.number(1.5))
	}},
	{"norm-products", 7, func(b *builder, x value, i int) value {
		y := b.Op("MatMul", x, b.few(i, 0))
		root := b.Op("Add", b.Op("Sqrt", b.Op("ReduceMean", b.Op("Mul", y, y), []int64{-1})), b.number(1e-6))
		return b.Op("Add", x, b.Op("Div", y, root))
	}},
	{"layernorm-max", 6, func(b *builder, x value, _ int) value {
		d := b.Op("Sub", x, b.Op("ReduceMax", x, []int64{-1}))
		mean := b.Op("ReduceMean", b.Op("Mul", d, d), []int64{-1})
		return b.Op("Div", d, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6))))
	}},
	{"gate", 4, func(b *builder, x value, i int) value {
		return b.Op("Mul", b.Op("Sigmoid", b.Op("Mul", x, b.number(float64(i)))), b.Op("Cos", x))
	}},
	{"gate-Exp", 6, func(b *builder, x value, i int) value {
		e := b.Op("Exp", b.Op("Mul", x, b.number(-1.1-float64(i%50))))
		return b.Op("Mul", b.Op("Div", x, b.Op("Add", e, b.number(1))), b.Op("Sin", x))
	}},
	{"gate-products", 6, func(b *builder, x value, i int) value {
		g, u := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1))
		return b.Op("Mul", b.Op("Mul", g, b.Op("Sigmoid", b.Op("Sin", g))), u)
	}},
	{"gate-Tanh", 5, func(b *builder, x value, i int) value {
		tanh := b.Op("Tanh", b.Op("Mul", x, b.number(0.3+float64(i%40))))
		return b.Op("Mul", b.Op("Add", tanh, b.number(1)), b.Op("Neg", x))
	}},
	{"softmax", 5, func(b *builder, x value, i int) value {
		e := b.Op("Exp", b.Op("Sub", x, b.Op("ReduceMax", x, []int64{-1})))
		return b.Op("Div", e, b.Op("ReduceSum", b.Op("Mul", e, b.number(1+float64(i%3))), []int64{-1}))
	}},
	{"attention", 5, func(b *builder, x value, _ int) value {
		scores := b.Op("MatMul", x, b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		return b.Op("MatMul", b.Op("Softmax", b.Op("Sin", scores), last), x)
	}},
	{"attention-Exp", 4, func(b *builder, x value, _ int) value {
		scores := b.Op("MatMul", x, b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		return b.Op("MatMul", b.Op("Exp", scores), x)
	}},
	{"attention-square", 6, func(b *builder, x value, _ int) value {
		scores := b.Op("MatMul", x, b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		p := b.Op("Softmax", scores, last)
		return b.Op("MatMul", b.Op("Mul", p, p), x)
	}},
	{"attention-products", 10, func(b *builder, x value, i int) value {
		q, k, v := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1)), b.Op("MatMul", x, b.few(i+1, 0))
		scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		scores = b.Op("Add", scores, b.Op("Cos", scores))
		return b.Op("Add", x, b.Op("MatMul", b.Op("Softmax", scores, last), v))
	}},
	{"attention-Softmax-MatMul", 2, func(b *builder, x value, i int) value {
		return b.Op("MatMul", b.Op("Softmax", x, last), b.few(i, 0))
	}},
	{"rotary", 7, func(b *builder, x value, _ int) value {
		r := b.Op("Concat", b.Op("Neg", b.half(x, half-1, width-1)), b.half(x, 0, half), last)
		return b.Op("Add", b.Op("Mul", x, b.few(0, 0)), b.Op("Mul", r, b.few(0, 1)))
	}},
	{"rotary-positions", 9, func(b *builder, x value, i int) value {
		angle := b.Op("Mul", x, b.number(0.25+float64(i%30)))
		r := b.Op("Concat", b.half(x, half, width), b.half(x, 0, half), last)
		return b.Op("Add", b.Op("Mul", x, b.Op("Cos", angle)), b.Op("Mul", r, b.Op("Sin", angle)))
	}},
	{"router", 5, func(b *builder, x value, i int) value {
		t := b.Ops(2, "TopK", b.Op("Softmax", b.Op("MatMul", x, b.few(i, 0)), last), []int64{4}, last)
		return b.Op("Add", x, b.Op("Tile", t[0], []int64{1, 1, width / 4}))
	}},
	{"router-experts", 8, func(b *builder, x value, i int) value {
		t := b.Ops(2, "TopK", b.Op("Softmax", b.Op("MatMul", x, b.few(i, 0)), last), []int64{4}, last)
		rows := b.Op("Gather", b.few(i, 1), t[1])
		return b.Op("Add", x, b.Op("ReduceSum", b.Op("Mul", b.Op("Cos", rows), b.Op("Unsqueeze", t[0], []int64{-1})),
			[]int64{2}, onnx.IntAttr("keepdims", 0)))
	}},
	{"ArgMax", 4, func(b *builder, x value, i int) value {
		id := b.Op("ArgMax", b.Op("MatMul", x, b.few(i, 0)), last)
		return b.Op("Add", x, b.Op("Cast", id, onnx.IntAttr("to", int64(onnx.Float))))
	}},
})

type step struct {
	name  string
	nodes int
	add   func(b *builder, x value, i int) value
}

// twice makes a chain and parallel branches of each step.
func twice(prefix string, steps []step) []Shape {
	var list []Shape
	for _, s := range steps {
		list = append(list, chain(prefix+s.name, s.nodes, s.add), parallel(prefix+s.name+"-parallel", s.nodes, s.add))
	}
	return list
}
