package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

// masked is an attention block whose scores pass through mask, which may add the remaining nodes.
func masked(name string, mask func(b *builder, scores, rows, columns value) value) Shape {
	return Shape{"mask-" + name, func(b *builder) {
		x := b.rows()
		q, k, v := b.product(x, width, width), b.product(x, width, width), b.product(x, width, width)
		scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		scores = b.Op("Mul", scores, b.number(0.125))
		n := b.Op("Gather", b.Op("Shape", x), 1)
		positions := b.Op("Range", 0, n, 1)
		scores = mask(b, scores, b.Op("Unsqueeze", positions, []int64{1}), b.Op("Unsqueeze", positions, []int64{0}))
		b.Output(b.Op("MatMul", b.Op("Softmax", scores, last), v))
	}}
}

func (b *builder) causal(rows, columns value) value { return b.Op("LessOrEqual", columns, rows) }

var masks = []Shape{
	masked("Where-chain", func(b *builder, scores, rows, columns value) value {
		sees := b.causal(rows, columns)
		for i := 0; b.more(4); i++ {
			scores = b.Op("Where", sees, scores, b.number(-1000-float64(i)))
		}
		return scores
	}),
	masked("Add-chain", func(b *builder, scores, rows, columns value) value {
		bias := b.Op("Where", b.causal(rows, columns), b.number(0), b.number(-1e9))
		for b.more(4) {
			scores = b.Op("Add", scores, bias)
		}
		return scores
	}),
	masked("And-chain", func(b *builder, scores, rows, columns value) value {
		sees := b.causal(rows, columns)
		for i := 0; b.more(6); i++ {
			sees = b.Op("And", sees, b.Op("Less", b.Op("Sub", rows, columns), 1000+i))
		}
		return b.Op("Where", sees, scores, b.number(-1e9))
	}),
	masked("bias-chain", func(b *builder, scores, rows, columns value) value {
		bias := b.Op("Cast", b.Op("Sub", columns, rows), onnx.IntAttr("to", int64(onnx.Float)))
		for i := 0; b.more(6); i++ {
			bias = b.Op("Mul", b.Op("Add", bias, b.number(float64(i%9))), b.number(0.5))
		}
		return b.Op("Add", scores, bias)
	}),
	masked("positions-chain", func(b *builder, scores, rows, columns value) value {
		for b.more(8) {
			rows = b.Op("Add", b.Op("Sub", rows, 1), 1)
		}
		return b.Op("Where", b.causal(rows, columns), scores, b.number(-1e9))
	}),
	masked("scores-chain", func(b *builder, scores, rows, columns value) value {
		for i := 0; b.more(6); i++ {
			scores = b.Op("Tanh", b.Op("Mul", scores, b.number(0.5+float64(i%7))))
		}
		return b.Op("Where", b.causal(rows, columns), scores, b.number(-1e9))
	}),
	masked("scores-diamonds", func(b *builder, scores, rows, columns value) value {
		for b.more(4) {
			scores = b.Op("Mul", scores, scores)
		}
		return scores
	}),
	masked("different-Where", func(b *builder, scores, rows, columns value) value {
		for i := 0; b.more(7); i++ {
			scores = b.Op("Where", b.Op("Less", b.Op("Sub", rows, columns), 10+i), scores, b.number(-1e9))
		}
		return scores
	}),
	{"mask-layers", func(b *builder) { // attention layers that all read a mask with a long path
		x := b.rows()
		n := b.Op("Gather", b.Op("Shape", x), 1)
		positions := b.Op("Range", 0, n, 1)
		rows, columns := b.Op("Unsqueeze", positions, []int64{1}), b.Op("Unsqueeze", positions, []int64{0})
		sees := b.causal(rows, columns)
		for i := 0; b.more(b.nodes / 2); i++ {
			sees = b.Op("And", sees, b.Op("Less", b.Op("Sub", rows, columns), 1000+i))
		}
		for i := 0; b.more(9) || i == 0; i++ {
			q, k, v := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1)), b.Op("MatMul", x, b.few(i+1, 0))
			scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1})))
			scores = b.Op("Where", sees, b.Op("Mul", scores, b.number(0.1)), b.number(-1e9))
			x = b.Op("Add", x, b.Op("MatMul", b.Op("Softmax", scores, last), v))
		}
		b.Output(x)
	}},
	chain("chain-Softmax-Where", 3, func(b *builder, x value, i int) value {
		return b.Op("Softmax", b.Op("Where", b.Op("Less", x, b.number(float64(i))), x, b.number(-1e9)), last)
	}),
}
