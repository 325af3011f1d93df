package infer

import "github.com/mojo-patch/mojo-patch/onnx"

// elementwiseRules: ops whose output has the shape that their inputs broadcast to, or that of their one input.
var elementwiseRules = merge(
	each(unary, "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf",
		"Exp",
		"Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg",
		"Reciprocal",
		"Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt",
		"Swish",
		"Tan", "Tanh", "ThresholdedRelu", "Hardmax", "BitwiseNot", "Trilu", "CumSum", "CumProd", "Clip", "PRelu",
		"LpNormalization",
		"MeanVarianceNormalization", "LRN", "InstanceNormalization", "GroupNormalization", "ReverseSequence"),
	each(unaryBool, "Not", "IsNaN", "IsInf"),
	each(elementwise, "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Mean", "Sum", "BitShift", "BitwiseAnd",
		"BitwiseOr", "BitwiseXor"),
	each(elementwiseBool, "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"),
	map[string]rule{
		"Pow": func(c *call) { c.set(0, c.dtype(0), c.broadcast(c.shape(0), c.shape(1))) },
		"Where": func(c *call) {
			c.set(0, c.firstType(1), c.broadcast(c.shape(0), c.shape(1), c.shape(2)))
		},
		"Cast":      func(c *call) { c.set(0, c.attrType("to", onnx.Undefined), c.shape(0)) },
		"BitCast":   bitCast,
		"CastLike":  func(c *call) { c.set(0, c.dtype(1), c.shape(0)) },
		"Dropout":   func(c *call) { c.set(0, c.dtype(0), c.shape(0)); c.set(1, onnx.Bool, c.shape(0)) },
		"Bernoulli": func(c *call) { c.set(0, c.attrType("dtype", c.dtype(0)), c.shape(0)) },
		"EyeLike":   func(c *call) { c.set(0, c.attrType("dtype", c.dtype(0)), c.shape(0)) },
		"RandomNormalLike": func(c *call) {
			c.set(0, c.attrType("dtype", c.dtype(0)), c.shape(0))
		},
		"RandomUniformLike": func(c *call) {
			c.set(0, c.attrType("dtype", c.dtype(0)), c.shape(0))
		},
		"QuantizeLinear":        quantize,
		"DequantizeLinear":      dequantize,
		"DynamicQuantizeLinear": dynamicQuantize,
	},
)

func unary(c *call) { c.set(0, c.dtype(0), c.shape(0)) }

func unaryBool(c *call) { c.set(0, onnx.Bool, c.shape(0)) }

func elementwise(c *call) { c.set(0, c.firstType(0), c.broadcastAll()) }

func elementwiseBool(c *call) { c.set(0, onnx.Bool, c.broadcastAll()) }

func (c *call) broadcastAll() []int64 {
	if len(c.in) == 2 {
		return c.broadcast(c.shape(0), c.shape(1))
	}
	shapes := make([][]int64, len(c.in))
	for i := range c.in {
		shapes[i] = c.shape(i)
	}
	return c.broadcast(shapes...)
}

// bitCast: the last dimension is scaled when the element sizes differ, which the standard does not allow yet.
func bitCast(c *call) {
	to := c.attrType("to", onnx.Undefined)
	if to.Bits() == c.dtype(0).Bits() {
		c.set(0, to, c.shape(0))
		return
	}
	c.set(0, to, nil)
}

func quantize(c *call) {
	t := c.attrType("output_dtype", onnx.Undefined)
	if c.has(2) {
		t = c.dtype(2)
	} else if t == onnx.Undefined {
		t = onnx.Uint8
	}
	c.set(0, t, c.shape(0))
}

func dequantize(c *call) {
	t := c.attrType("output_dtype", onnx.Undefined)
	if t == onnx.Undefined {
		t = c.dtype(1)
	}
	c.set(0, t, c.shape(0))
}

func dynamicQuantize(c *call) {
	c.set(0, onnx.Uint8, c.shape(0))
	c.set(1, onnx.Float, []int64{})
	c.set(2, onnx.Uint8, []int64{})
}
