package hostile

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// wide shapes have many small parts, or few nodes with very many inputs.
var wide = []Shape{
	{"short-chains", func(b *builder) { // many, each of a separate input
		for i := 0; b.more(5); i++ {
			x := b.Input(fmt.Sprintf("x%d", i), onnx.Float, "batch", "seq", width)
			b.Output(b.Op("Mul", b.Op("Exp", b.Op("Neg", b.Op("Add", x, b.number(1)))), b.Op("Tanh", x)))
		}
	}},
	parallel("short-chains-norms", 4, func(b *builder, x value, i int) value { // each with its own number
		root := b.Op("Sqrt", b.Op("ReduceMean", b.Op("Pow", x, b.number(2+float64(i)/1e6)), []int64{-1}))
		return b.Op("Div", x, root)
	}),
	parallel("short-chains-gates", 3, func(b *builder, x value, i int) value {
		return b.Op("Mul", x, b.Op("Sigmoid", b.Op("Mul", x, b.number(1+float64(i)/1e3))))
	}),
	parallel("short-chains-kinds", 5, func(b *builder, x value, i int) value { // few are alike
		ops := []string{"Tanh", "Exp", "Sigmoid", "Cos", "Sin", "Relu", "Neg", "Abs", "Erf", "Sqrt", "Softplus", "Elu",
			"Log", "Ceil", "Selu", "Sign", "Atan"}
		y := x
		for range 4 {
			y, i = b.Op(ops[i%len(ops)], y), i/len(ops)
		}
		return b.Op("Mul", y, x)
	}),
	parallel("short-chains-rotary", 7, func(b *builder, x value, i int) value {
		r := b.Op("Concat", b.Op("Neg", b.half(x, half, width)), b.half(x, 0, half), last)
		return b.Op("Add", b.Op("Mul", x, b.number(float64(i%90)/90)), b.Op("Mul", r, b.number(float64(i%70)/70)))
	}),
	{"fan-out-kinds", func(b *builder) { // nodes of many kinds read one value, and each pair of them meets
		x := b.product(b.rows(), width, width)
		var list values
		for _, op := range []string{"Tanh", "Exp", "Sigmoid", "Cos", "Sin", "Relu", "Neg", "Abs", "Erf", "Sqrt"} {
			list = append(list, b.Op(op, x))
		}
		for i := 0; b.more(1); i++ {
			list = append(list, b.Op("Mul", list[i%10], list[i/10%len(list)]))
		}
		for _, v := range list[10:] {
			b.Output(v)
		}
	}},
	{"fan-out-sums", func(b *builder) { // all gates of one value read every norm of another
		x := b.product(b.rows(), width, width)
		sum := b.Op("ReduceSum", b.Op("Mul", x, x), []int64{-1})
		for i := 0; b.more(3); i++ {
			b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", sum, b.number(float64(i))))), b.row(i)))
		}
	}},
	{"wide-Sum", func(b *builder) {
		x := b.product(b.rows(), width, width)
		var list values
		for i := 0; b.more(2); i++ {
			list = append(list, b.Op("Exp", x))
		}
		b.Output(b.Op("Mul", b.Op("Sum", list), x))
	}},
	{"wide-Concat-repeated", func(b *builder) { // of a value and its negative, again and again
		x := b.product(b.rows(), width, width)
		n := b.Op("Neg", x)
		var list values
		for range b.nodes {
			list = append(list, n, x)
		}
		b.Output(b.Op("Mul", b.Op("Concat", list, last), b.Op("Concat", list, last)))
	}},
	{"wide-Concat-shape", func(b *builder) { // a shape of very many integers
		x := b.rows()
		shape := b.Op("Shape", x)
		var list values
		for b.more(3) {
			list = append(list, b.Op("Slice", shape, []int64{0}, []int64{1}))
		}
		b.Output(b.Op("Add", b.Op("ReduceProd", b.Op("Concat", list, onnx.IntAttr("axis", 0)), []int64{0}), 1))
	}},
	chain("diamond-Max-Sub", 2, func(b *builder, x value, _ int) value {
		return b.Op("Sub", b.Op("Max", x, b.number(1)), x)
	}),
	chain("diamond-Pow", 1, func(b *builder, x value, _ int) value { return b.Op("Pow", x, x) }),
	chain("diamond-three", 3, func(b *builder, x value, _ int) value {
		return b.Op("Sum", b.Op("Exp", x), x, b.Op("Sigmoid", x))
	}),
	chain("diamond-Exp-sums", 4, func(b *builder, x value, _ int) value {
		e := b.Op("Exp", x)
		return b.Op("Mul", b.Op("Div", e, b.Op("ReduceSum", e, []int64{-1})), x)
	}),
	chain("diamond-rotary", 4, func(b *builder, x value, _ int) value {
		return b.Op("Add", b.Op("Mul", x, b.few(0, 0)), b.Op("Mul", b.half(x, 0, width), b.few(0, 1)))
	}),
	chain("diamond-Concat", 3, func(b *builder, x value, _ int) value {
		return b.half(b.Op("Concat", x, b.Op("Neg", x), last), half, half+width)
	}),
	chain("diamond-MatMul", 2, func(b *builder, x value, _ int) value {
		return b.Op("MatMul", b.Op("MatMul", x, b.few(0, 0)), b.few(0, 1))
	}),
	{"initializers", func(b *builder) { // one for each node
		x := b.rows()
		for b.more(1) {
			x = b.Op("Mul", x, b.matrix(width))
		}
		b.Output(x)
	}},
	{"initializers-unused", func(b *builder) {
		for range b.nodes {
			b.matrix(1)
		}
		b.Output(b.Op("Exp", b.rows()))
	}},
	chain("constants-read-by-all", 3, func(b *builder, x value, _ int) value { // each reads one computed constant
		if b.constants[-1] == nil {
			b.constants[-1] = b.Op("Sqrt", b.Op("Exp", b.matrix(width)))
		}
		return b.Op("Tanh", b.Op("Add", b.Op("Mul", x, b.constants[-1]), b.constants[-1]))
	}),
}
