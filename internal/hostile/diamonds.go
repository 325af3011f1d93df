package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

// diamonds split a value and join it again, so that each doubles the number of paths through them.
var diamonds = []Shape{
	chain("diamond-Mul", 1, func(b *builder, x value, _ int) value { return b.Op("Mul", x, x) }),
	chain("diamond-Add", 1, func(b *builder, x value, _ int) value { return b.Op("Add", x, x) }),
	chain("diamond-Mul-Add", 2, func(b *builder, x value, _ int) value {
		return b.Op("Mul", x, b.Op("Add", x, b.number(1)))
	}),
	chain("diamond-two-sides", 3, func(b *builder, x value, _ int) value {
		return b.Op("Add", b.Op("Relu", x), b.Op("Neg", x))
	}),
	joined("Mul", "Exp"), joined("Mul", "Sigmoid"), joined("Mul", "Tanh"), joined("Mul", "Erf"), joined("Mul", "Cos"),
	joined("Div", "Exp"), joined("Add", "Exp"), joined("Add", "Tanh"), joined("Max", "Neg"), joined("Mul", "Gelu"),
	chain("diamond-Exp", 3, func(b *builder, x value, _ int) value {
		return b.Op("Div", b.Op("Exp", x), b.Op("Add", b.Op("Exp", x), b.number(1)))
	}),
	chain("diamond-products", 3, func(b *builder, x value, i int) value {
		return b.Op("Mul", b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1)))
	}),
	chain("diamond-products-sum", 4, func(b *builder, x value, i int) value {
		return b.Op("Add", x, b.Op("Add", b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1))))
	}),
	chain("diamond-products-gated", 4, func(b *builder, x value, i int) value {
		return b.Op("Mul", b.Op("Sin", b.Op("MatMul", x, b.few(i, 0))), b.Op("MatMul", x, b.few(i, 1)))
	}),
	chain("diamond-Where", 3, func(b *builder, x value, i int) value {
		return b.Op("Where", b.Op("Greater", x, b.number(0)), x, b.Op("Mul", x, b.number(0.5)))
	}),
	chain("diamond-softmax", 2, func(b *builder, x value, _ int) value {
		return b.Op("Mul", x, b.Op("Softmax", x, last))
	}),
	chain("diamond-Concat-Split", 4, func(b *builder, x value, _ int) value {
		p := b.Ops(2, "Split", x, last, onnx.IntAttr("num_outputs", 2))
		return b.Op("Concat", b.Op("Mul", p[0], p[1]), b.Op("Add", p[0], p[1]), last)
	}),
	{"tree-Add", func(b *builder) { // of leaves that all differ
		x := b.rows()
		var level values
		for i := 0; 2*len(level) < b.nodes; i++ {
			level = append(level, b.Op("Mul", x, b.number(float64(i))))
		}
		for len(level) > 1 {
			var next values
			for i := 0; i+1 < len(level); i += 2 {
				next = append(next, b.Op("Add", level[i], level[i+1]))
			}
			if len(level)%2 > 0 {
				next = append(next, level[len(level)-1])
			}
			level = next
		}
		b.Output(level[0])
	}},
	{"comb-Add", func(b *builder) { // each new term is added to the previous sum
		x := b.rows()
		sum := b.Op("Mul", x, b.number(0))
		for i := 1; b.more(2); i++ {
			sum = b.Op("Add", b.Op("Mul", x, b.number(float64(i))), sum)
		}
		b.Output(sum)
	}},
	{"comb-Mul", func(b *builder) {
		x := b.rows()
		sum := x
		for i := 1; b.more(2); i++ {
			sum = b.Op("Mul", b.Op("Add", x, b.number(float64(i))), sum)
		}
		b.Output(sum)
	}},
	{"dense", func(b *builder) { // each layer reads the five before it
		list := values{b.rows()}
		for b.more(1) {
			list = append(list, b.Op("Sum", list[max(0, len(list)-5):]))
		}
		b.Output(list[len(list)-1])
	}},
}

// joined joins a value with the result of an op on it.
func joined(op, of string) Shape {
	return chain("diamond-"+op+"-"+of, 2, func(b *builder, x value, _ int) value { return b.Op(op, b.Op(of, x), x) })
}

// few returns one of a few matrices.
func (b *builder) few(i, j int) value {
	key := -float64(2*(i%5)+j) - 100
	if b.constants[key] == nil {
		b.constants[key] = b.matrix(width, width)
	}
	return b.constants[key]
}
