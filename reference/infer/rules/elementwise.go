package rules

import "github.com/mojo-patch/mojo-patch/onnx"

// elementwiseRules: ops whose output has the broadcast shape of their inputs, or the shape of their only input.
var elementwiseRules = merge(
	each(unary, "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Clip", "Cos",
		"Cosh", "CumProd", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "GroupNormalization", "HardSigmoid",
		"HardSwish", "Hardmax", "Identity", "InstanceNormalization", "LRN", "LeakyRelu", "Log", "LogSoftmax",
		"LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "PRelu", "Reciprocal", "Relu",
		"ReverseSequence", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus",
		"Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu"),
	each(shaped(always(onnx.Bool), shapeOf(0)), "Not", "IsNaN", "IsInf"),
	each(shaped(firstOf(0), broadcast), "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Mean", "Sum", "BitShift",
		"BitwiseAnd", "BitwiseOr", "BitwiseXor"),
	each(shaped(always(onnx.Bool), broadcast), "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or",
		"Xor"),
	each(shaped(given("dtype"), shapeOf(0)), "Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"),
	map[string]Rule{
		"Pow":   shaped(like(0), broadcast),
		"Where": shaped(firstOf(1), broadcast),
		"Cast": shaped(func(c *Call) onnx.DataType { return c.attrType("to", onnx.Undefined) },
			shapeOf(0)),
		"BitCast":               bitCast,
		"CastLike":              shaped(like(1), shapeOf(0)),
		"Dropout":               func(c *Call) { c.set(0, c.dtype(0), c.shape(0)); c.set(1, onnx.Bool, c.shape(0)) },
		"QuantizeLinear":        quantize,
		"DequantizeLinear":      dequantize,
		"DynamicQuantizeLinear": dynamicQuantize,
	},
)

func unary(c *Call) { c.set(0, c.dtype(0), c.shape(0)) }

// broadcast returns the shape that all inputs broadcast to.
func broadcast(c *Call) []int64 {
	if len(c.In) == 2 { // without an allocation
		return c.broadcast(c.shape(0), c.shape(1))
	}
	shapes := make([][]int64, len(c.In))
	for i := range c.In {
		shapes[i] = c.shape(i)
	}
	return c.broadcast(shapes...)
}

// bitCast: the last dimension scales if the element sizes differ, which the standard does not allow yet.
func bitCast(c *Call) {
	to := c.attrType("to", onnx.Undefined)
	if to.Bits() == c.dtype(0).Bits() {
		c.set(0, to, c.shape(0))
		return
	}
	c.set(0, to, nil)
}

func quantize(c *Call) {
	t := c.attrType("output_dtype", onnx.Undefined)
	if c.has(2) {
		t = c.dtype(2)
	} else if t == onnx.Undefined {
		t = onnx.Uint8
	}
	c.set(0, t, c.shape(0))
}

func dequantize(c *Call) {
	t := c.attrType("output_dtype", onnx.Undefined)
	if t == onnx.Undefined {
		t = c.dtype(1)
	}
	c.set(0, t, c.shape(0))
}

func dynamicQuantize(c *Call) {
	c.set(0, onnx.Uint8, c.shape(0))
	c.set(1, onnx.Float, []int64{})
	c.set(2, onnx.Uint8, []int64{})
}
