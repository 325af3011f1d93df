package hostile

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// row returns one of a few rows of numbers.
func (b *builder) row(i int) value {
	key := -float64(i%5) - 1000
	if b.constants[key] == nil {
		b.constants[key] = b.matrix(width)
	}
	return b.constants[key]
}

// blocks are very many real blocks.
var blocks = twice("blocks-", []step{
	{"RMSNorm", 6, func(b *builder, x value, i int) value {
		ms := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", ms, b.number(1e-6)))), b.row(i))
	}},
	{"RMSNorm-epsilons", 6, func(b *builder, x value, i int) value { // each with its own epsilon
		ms := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", ms, b.number(1e-6*float64(i+1))))), b.row(i))
	}},
	{"RMSNorm-fitted", 6, func(b *builder, x value, i int) value {
		l2 := b.Op("ReduceL2", x, []int64{-1})
		ms := b.Op("Mul", b.Op("Mul", l2, l2), b.number(1./width))
		return b.Op("Mul", b.Op("Mul", x, b.Op("Pow", b.Op("Add", ms, b.number(1e-6)), b.number(-0.5))), b.row(i))
	}},
	{"RMSNorm-fitted-epsilons", 6, func(b *builder, x value, i int) value {
		l2 := b.Op("ReduceL2", x, []int64{-1})
		ms := b.Op("Mul", b.Op("Mul", l2, l2), b.number(1./width))
		return b.Op("Mul", b.Op("Mul", x, b.Op("Pow", b.Op("Add", ms, b.number(1e-6*float64(i+1))), b.number(-0.5))),
			b.row(i))
	}},
	{"LayerNorm", 8, func(b *builder, x value, i int) value {
		d := b.Op("Sub", x, b.Op("ReduceMean", x, []int64{-1}))
		v := b.Op("ReduceMean", b.Op("Mul", d, d), []int64{-1})
		d = b.Op("Div", d, b.Op("Sqrt", b.Op("Add", v, b.number(1e-5))))
		return b.Op("Add", b.Op("Mul", d, b.row(i)), b.row(i+1))
	}},
	{"SwiGLU", 6, func(b *builder, x value, i int) value {
		g, u := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1))
		return b.Op("MatMul", b.Op("Mul", b.Op("Mul", g, b.Op("Sigmoid", g)), u), b.few(i+1, 0))
	}},
	{"SwiGLU-fitted", 8, func(b *builder, x value, i int) value {
		g, u := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1))
		e := b.Op("Exp", b.Op("Mul", g, b.number(-1-float64(i%60)/100)))
		return b.Op("MatMul", b.Op("Mul", b.Op("Div", g, b.Op("Add", e, b.number(1))), u), b.few(i+1, 0))
	}},
	{"attention", 11, func(b *builder, x value, i int) value {
		q, k, v := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1)), b.Op("MatMul", x, b.few(i+1, 0))
		scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		p := b.Op("Softmax", b.Op("Mul", scores, b.number(0.1)), last)
		return b.Op("Add", x, b.Op("MatMul", b.Op("MatMul", p, v), b.few(i+1, 1)))
	}},
	{"attention-scales", 11, func(b *builder, x value, i int) value {
		q, k, v := b.Op("MatMul", x, b.few(i, 0)), b.Op("MatMul", x, b.few(i, 1)), b.Op("MatMul", x, b.few(i+1, 0))
		scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		p := b.Op("Softmax", b.Op("Mul", scores, b.number(0.1+float64(i)/1e5)), last)
		return b.Op("Add", x, b.Op("MatMul", b.Op("MatMul", p, v), b.few(i+1, 1)))
	}},
	{"rotary", 7, func(b *builder, x value, _ int) value {
		if b.constants[-1] == nil {
			n := b.Op("Gather", b.Op("Shape", x), 1)
			positions := b.Op("Cast", b.Op("Unsqueeze", b.Op("Range", 0, n, 1), []int64{1}),
				onnx.IntAttr("to", int64(onnx.Float)))
			freq := make([]float32, half)
			for i := range freq {
				freq[i] = float32(math.Pow(10000, -float64(i)/half))
			}
			angle := b.Op("Mul", positions, b.Floats([]int64{half}, freq...))
			angle = b.Op("Concat", angle, angle, last)
			b.constants[-1], b.constants[-2] = b.Op("Cos", angle), b.Op("Sin", angle)
		}
		r := b.Op("Concat", b.Op("Neg", b.half(x, half, width)), b.half(x, 0, half), last)
		return b.Op("Add", b.Op("Mul", x, b.constants[-1]), b.Op("Mul", r, b.constants[-2]))
	}},
	{"router", 9, func(b *builder, x value, i int) value {
		v, ids := b.topK(b.Op("Softmax", b.Op("MatMul", x, b.few(i, 0)), last), 4)
		v = b.Op("Div", v, b.Op("ReduceSum", v, []int64{-1}))
		rows := b.Op("Gather", b.few(i, 1), ids)
		return b.Op("Add", x, b.Op("ReduceSum", b.Op("Mul", b.Op("Cos", rows), b.Op("Unsqueeze", v, []int64{-1})),
			[]int64{2},
			onnx.IntAttr("keepdims", 0)))
	}},
})
