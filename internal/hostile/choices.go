package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

func (b *builder) topK(x value, k int64) (values, ids value) {
	t := b.Ops(2, "TopK", x, []int64{k}, last)
	return t[0], t[1]
}

// choices are routers, experts and lookalikes.
var choices = []Shape{
	chain("chain-TopK", 1, func(b *builder, x value, i int) value {
		v, _ := b.topK(x, width)
		return v
	}),
	chain("chain-TopK-ids", 2, func(b *builder, x value, i int) value {
		_, ids := b.topK(x, width)
		return b.Op("Cast", ids, onnx.IntAttr("to", int64(onnx.Float)))
	}),
	chain("chain-TopK-product", 2, func(b *builder, x value, i int) value {
		v, _ := b.topK(b.Op("MatMul", x, b.few(i, 0)), width)
		return v
	}),
	chain("chain-TopK-Gather", 3, func(b *builder, x value, i int) value {
		v, ids := b.topK(x, 4)
		return b.Op("Add", x,
			b.Op("ReduceSum", b.Op("Mul", b.Op("Gather", b.few(0, 0), ids), b.Op("Unsqueeze", v, []int64{-1})),
				[]int64{2}, onnx.IntAttr("keepdims", 0)))
	}),
	chain("chain-GatherElements", 2, func(b *builder, x value, i int) value {
		_, ids := b.topK(x, width)
		return b.Op("GatherElements", x, ids, last)
	}),
	{"fan-TopK", func(b *builder) { // of the same logits
		x := b.rows()
		logits := b.product(x, width, width)
		var list values
		for i := 0; b.more(3); i++ {
			v, ids := b.topK(b.Op("Softmax", logits, last), 1+int64(i%8))
			list = append(list, b.Op("ReduceSum", v, []int64{-1}),
				b.Op("ReduceSum", b.Op("Gather", b.few(0, 0), ids), []int64{2, 3},
					onnx.IntAttr("keepdims", 0)))
		}
		for _, v := range list {
			b.Output(v)
		}
	}},
	{"fan-experts", func(b *builder) { // one router, and as many experts as fit
		x := b.rows()
		experts := int64(max(2, b.nodes/12))
		v, ids := b.topK(b.Op("Softmax", b.product(x, width, experts), last), 2)
		sum := x
		gate, up, down := b.matrix(width, 16), b.matrix(width, 16), b.matrix(16, width)
		for e := range experts {
			chosen := b.Op("Cast", b.Op("Equal", ids, int(e)), onnx.IntAttr("to", int64(onnx.Float)))
			weight := b.Op("ReduceSum", b.Op("Mul", v, chosen), []int64{-1})
			g := b.Op("MatMul", x, gate)
			y := b.Op("MatMul", b.Op("Mul", b.Op("Mul", g, b.Op("Sigmoid", g)), b.Op("MatMul", x, up)), down)
			sum = b.Op("Add", sum, b.Op("Mul", y, weight))
		}
		b.Output(sum)
	}},
	{"fan-experts-odd", func(b *builder) { // of other functions than experts compute
		x := b.rows()
		v, ids := b.topK(b.Op("Softmax", b.product(x, width, width), last), 2)
		sum := x
		for i := 0; b.more(8); i++ {
			chosen := b.Op("Cast", b.Op("Equal", ids, i%width), onnx.IntAttr("to", int64(onnx.Float)))
			weight := b.Op("ReduceSum", b.Op("Mul", v, chosen), []int64{-1})
			y := b.Op("MatMul", b.Op("Sin", b.Op("MatMul", x, b.few(i, 0))), b.few(i, 1))
			sum = b.Op("Add", sum, b.Op("Mul", y, weight))
		}
		b.Output(sum)
	}},
	{"fan-routers-deep", func(b *builder) { // each router reads the experts of the one before
		x := b.rows()
		for i := 0; b.more(40); i++ {
			v, ids := b.topK(b.Op("Softmax", b.Op("MatMul", x, b.few(i, 0)), last), 2)
			sum := x
			for e := range 4 {
				chosen := b.Op("Cast", b.Op("Equal", ids, e), onnx.IntAttr("to", int64(onnx.Float)))
				weight := b.Op("ReduceSum", b.Op("Mul", v, chosen), []int64{-1})
				y := b.Op("MatMul", b.Op("Sin", b.Op("MatMul", x, b.few(i, 0))), b.few(i, 1))
				sum = b.Op("Add", sum, b.Op("Mul", y, weight))
			}
			x = sum
		}
		b.Output(x)
	}},
	{"router-long", func(b *builder) { // a long path from the logits to the choice
		x := b.rows()
		s := b.product(x, width, width)
		for i := 0; b.more(6); i++ {
			s = b.Op("Sigmoid", b.Op("Mul", s, b.number(0.5+float64(i%9))))
		}
		v, ids := b.topK(s, 4)
		b.Output(b.Op("ReduceSum", b.Op("Mul", b.Op("Gather", b.few(0, 0), ids), b.Op("Unsqueeze", v, []int64{-1})),
			[]int64{2}))
	}},
	{"router-long-weights", func(b *builder) { // and from the choice to the weights
		x := b.rows()
		v, ids := b.topK(b.Op("Softmax", b.product(x, width, width), last), 4)
		for i := 0; b.more(6); i++ {
			v = b.Op("Sqrt", b.Op("Mul", v, b.number(0.5+float64(i%9))))
		}
		b.Output(b.Op("ReduceSum", b.Op("Mul", b.Op("Gather", b.few(0, 0), ids), b.Op("Unsqueeze", v, []int64{-1})),
			[]int64{2}))
	}},
	chain("chain-Scatter", 3, func(b *builder, x value, i int) value {
		v, ids := b.topK(x, 8)
		return b.Op("ScatterElements", x, ids, b.Op("Neg", v), last)
	}),
	chain("chain-OneHot", 4, func(b *builder, x value, i int) value {
		hot := b.Op("OneHot", b.Op("ArgMax", x, last, onnx.IntAttr("keepdims", 0)), width,
			b.Constant(onnx.NewFloat32s("onoff", []int64{2}, []float32{0, 1})))
		return b.Op("Add", x, hot)
	}),
	chain("chain-NonZero", 4, func(b *builder, x value, i int) value {
		at := b.Op("Transpose", b.Op("NonZero", x), onnx.IntsAttr("perm", []int64{1, 0}))
		return b.Op("ScatterND", x, at, b.Op("GatherND", x, at))
	}),
}
