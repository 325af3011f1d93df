package hostile

import "github.com/mojo-patch/mojo-patch/onnx"

var last = onnx.IntAttr("axis", -1)

var chains = []Shape{
	unary("Exp"), unary("Sigmoid"), unary("Tanh"), unary("Erf"), unary("Relu"), unary("Sqrt"), unary("Neg"),
	unary("Reciprocal"), unary("Log"), unary("Identity"), unary("Gelu"), unary("HardSwish"), unary("Softplus"),
	unary("Softmax", last), unary("LogSoftmax", last), unary("Cos"), unary("Floor"),
	chain("chain-Cast", 2, func(b *builder, x value, _ int) value {
		return b.Op("Cast", b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float16))),
			onnx.IntAttr("to", int64(onnx.Float)))
	}),
	chain("chain-Exp-Neg-Add-Div", 4, func(b *builder, x value, _ int) value {
		return b.Op("Div", b.number(1), b.Op("Add", b.number(1), b.Op("Exp", b.Op("Neg", x))))
	}),
	chain("chain-Add-constant", 1, func(b *builder, x value, i int) value {
		return b.Op("Add", x, b.number(float64(i%7)))
	}),
	chain("chain-Mul-constant", 1, func(b *builder, x value, i int) value { return b.Op("Mul", x, b.number(1.5)) }),
	chain("chain-Mul-vector", 1, func(b *builder, x value, i int) value {
		if i%100 == 0 {
			b.constants[-1] = b.matrix(width)
		}
		return b.Op("Mul", x, b.constants[-1])
	}),
	chain("chain-Pow", 1, func(b *builder, x value, _ int) value { return b.Op("Pow", x, b.number(2)) }),
	chain("chain-Clip", 1, func(b *builder, x value, i int) value {
		return b.Op("Clip", x, b.number(float64(-i)), b.number(float64(i+1)))
	}),
	chain("chain-Where", 2, func(b *builder, x value, i int) value {
		return b.Op("Where", b.Op("Less", x, b.number(float64(i))), x, b.number(0))
	}),
	chain("chain-Dropout", 1, func(b *builder, x value, _ int) value { return b.Op("Dropout", x) }),
	chain("chain-Reshape", 2, func(b *builder, x value, _ int) value {
		return b.Op("Reshape", b.Op("Reshape", x, []int64{0, 0, 8, 8}), []int64{0, 0, 64})
	}),
	chain("chain-Reshape-computed", 5, func(b *builder, x value, _ int) value {
		shape := b.Op("Shape", x)
		return b.Op("Reshape", b.Op("Flatten", x),
			b.Op("Concat", b.Op("Slice", shape, []int64{0}, []int64{2}), []int64{width},
				onnx.IntAttr("axis", 0)))
	}),
	chain("chain-Transpose", 2, func(b *builder, x value, _ int) value {
		return b.Op("Transpose", b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{1, 0, 2})),
			onnx.IntsAttr("perm", []int64{1, 0, 2}))
	}),
	chain("chain-Transpose-turns", 1, func(b *builder, x value, _ int) value {
		return b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{1, 2, 0}))
	}),
	chain("chain-Unsqueeze-Squeeze", 2, func(b *builder, x value, _ int) value {
		return b.Op("Squeeze", b.Op("Unsqueeze", x, []int64{1}), []int64{1})
	}),
	chain("chain-Reduce", 2, func(b *builder, x value, _ int) value {
		return b.Op("Mul", x, b.Op("ReduceMean", x, []int64{-1}))
	}),
	chain("chain-ReduceMax-Sub", 2, func(b *builder, x value, _ int) value {
		return b.Op("Sub", x, b.Op("ReduceMax", x, []int64{-1}))
	}),
	chain("chain-Reduce-alone", 1, func(b *builder, x value, _ int) value { return b.Op("ReduceSum", x, []int64{-1}) }),
	chain("chain-ReduceL2-Div", 2, func(b *builder, x value, _ int) value {
		return b.Op("Div", x, b.Op("ReduceL2", x, []int64{-1}))
	}),
	chain("chain-CumSum", 1, func(b *builder, x value, _ int) value { return b.Op("CumSum", x, []int64{-1}) }),
	chain("chain-MatMul", 1, func(b *builder, x value, i int) value {
		if i%100 == 0 {
			b.constants[-1] = b.matrix(width, width)
		}
		return b.Op("MatMul", x, b.constants[-1])
	}),
	chain("chain-MatMul-self", 2, func(b *builder, x value, _ int) value {
		return b.Op("MatMul", b.Op("MatMul", x, b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1}))), x)
	}),
	chain("chain-LayerNorm", 1, func(b *builder, x value, i int) value {
		if i == 0 {
			b.constants[-1] = b.matrix(width)
		}
		return b.Op("LayerNormalization", x, b.constants[-1])
	}),
	chain("chain-Einsum", 1, func(b *builder, x value, i int) value {
		if i%100 == 0 {
			b.constants[-1] = b.matrix(width, width)
		}
		return b.Op("Einsum", x, b.constants[-1], onnx.StringAttr("equation", "bsi,ij->bsj"))
	}),
	chain("chain-Pad-Slice", 2, func(b *builder, x value, _ int) value {
		return b.Op("Slice", b.Op("Pad", x, []int64{0, 0, 1, 0, 0, 1}), []int64{2}, []int64{width + 2}, []int64{2})
	}),
	chain("chain-scaled-tanhs", 4, func(b *builder, x value, i int) value {
		t := b.Op("Tanh", b.Op("Mul", x, b.number(0.5+float64(i%50)/100)))
		return b.Op("Add", x, b.Op("Mul", t, b.number(0.25+float64(i%70)/100)))
	}),
	chain("chain-QDQ", 2, func(b *builder, x value, i int) value {
		zero := b.constants[-1]
		if zero == nil {
			zero = b.Op("Constant", onnx.TensorAttr("value", must(onnx.NewTensor("", onnx.Int8, []int64{}, []byte{0}))))
			b.constants[-1] = zero
		}
		return b.Op("DequantizeLinear", b.Op("QuantizeLinear", x, b.number(0.1), zero), b.number(0.1), zero)
	}),
	chain("chain-norm-root", 3, func(b *builder, x value, _ int) value {
		return b.Op("Div", x, b.Op("Sqrt", b.Op("Add", x, b.number(1e-6))))
	}),
}
