package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

// segments are as long as a search may explore, between products of computed values, like the scores of attention.
var segments = []Shape{
	segment("Exp", func(b *builder, x value, i int) value { return b.Op("Exp", x) }),
	segment("Tanh-Mul", func(b *builder, x value, i int) value { return b.Op("Mul", b.Op("Tanh", x), b.number(0.5)) }),
	segment("Mul-Exp", func(b *builder, x value, i int) value { return b.Op("Mul", b.Op("Exp", x), x) }),
	segment("Add-Exp", func(b *builder, x value, i int) value { return b.Op("Add", b.Op("Exp", x), x) }),
	segment("Softmax", func(b *builder, x value, i int) value { return b.Op("Softmax", x, last) }),
	segment("Add-Softmax", func(b *builder, x value, i int) value { return b.Op("Add", b.Op("Softmax", x, last), x) }),
	segment("Where", func(b *builder, x value, i int) value {
		return b.Op("Softmax", b.Op("Where", b.Op("Less", x, b.number(float64(i))), x, b.number(-1e9)), last)
	}),
	segment("Transpose", func(b *builder, x value, i int) value {
		return b.Op("Exp", b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})))
	}),
	segment("norm", func(b *builder, x value, i int) value {
		return b.Op("Div", b.Op("Exp", x), b.Op("ReduceSum", x, []int64{-1}))
	}),
	apart,
	segment("Concat", func(b *builder, x value, i int) value {
		p := b.Ops(2, "Split", x, onnx.IntAttr("axis", 1), onnx.IntAttr("num_outputs", 2))
		return b.Op("Exp", b.Op("Concat", p, onnx.IntAttr("axis", 1)))
	}),
}

// apart is a value between products that does not depend on a product of two values: a search finds out only after
// looking at both operands of many additions.
var apart = chain("segments-apart", segmentNodes+4, func(b *builder, x value, k int) value {
	y := b.Op("Einsum", x, b.few(k, 0), b.few(k, 1), onnx.StringAttr("equation", "bsi,ij,jk->bsk"))
	for end := len(b.Graph.Nodes) + segmentNodes; len(b.Graph.Nodes) < end; {
		y = b.Op("Add", b.Op("Tanh", y), y)
	}
	return b.Op("MatMul", b.Op("Softmax", y, last), x)
})

const segmentNodes = 50

func segment(name string, step func(b *builder, x value, i int) value) Shape {
	return chain("segments-"+name, segmentNodes+4, func(b *builder, x value, k int) value {
		y := b.Op("MatMul", x, b.Op("Transpose", b.Op("MatMul", x, b.few(k, 0)),
			onnx.IntsAttr("perm", []int64{0, 2, 1})))
		for i, end := 0, len(b.Graph.Nodes)+segmentNodes; len(b.Graph.Nodes) < end; i++ {
			y = step(b, y, i)
		}
		return b.Op("MatMul", y, x)
	})
}
