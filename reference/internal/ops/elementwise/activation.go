package elementwise

import (
	"math"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// Activations compute in float64 and are rounded once, at the end.
var activationOps = map[string]op.Def{
	"Sigmoid":   op.Arith(1, unary(Sigmoid, nil)),
	"Softplus":  op.Arith(1, unary(Softplus, nil)),
	"Softsign":  op.Arith(1, unary(func(x float64) float64 { return x / (1 + math.Abs(x)) }, nil)),
	"HardSwish": op.Arith(1, unary(func(x float64) float64 { return x * clamp01(x/6+0.5) }, nil)),
	"Mish":      op.Arith(1, unary(func(x float64) float64 { return x * math.Tanh(Softplus(x)) }, nil)),
	"LeakyRelu": op.Arith(1, withAlpha(0.01,
		func(x, alpha float64) float64 { return tensor.Pick(x < 0, alpha*x, x) })),
	"ThresholdedRelu": op.Arith(1, withAlpha(1,
		func(x, alpha float64) float64 { return tensor.Pick(x > alpha, x, 0) })),
	"Elu": op.Arith(1, withAlpha(1, func(x, alpha float64) float64 {
		return tensor.Pick(x < 0, alpha*math.Expm1(x), x)
	})),
	"Celu": op.Arith(1, withAlpha(1, func(x, alpha float64) float64 {
		return math.Max(x, 0) + math.Min(0, alpha*math.Expm1(x/alpha))
	})),
	"Swish":       op.Arith(1, withAlpha(1, swish)),
	"HardSigmoid": op.Arith(1, opHardSigmoid),
	"Selu":        op.Arith(1, opSelu),
	"Shrink":      op.Arith(1, opShrink),
	"Gelu":        op.Arith(1, opGelu),

	"com.microsoft:Gelu":      op.Arith(1, unary(geluErf, nil)),
	"com.microsoft:QuickGelu": op.Arith(1, withAlpha(1.702, swish)),
	"com.microsoft:FastGelu":  op.Arith(1, opBiasGelu(GeluTanh)),
	"com.microsoft:BiasGelu":  op.Arith(2, opBiasGelu(geluErf)),
}

// Sigmoid returns 1 / (1 + exp(-x)).
func Sigmoid(x float64) float64 {
	if x < 0 { // keeps exp from overflowing
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

func swish(x, alpha float64) float64 { return x * Sigmoid(alpha*x) }

// Softplus returns log(1 + exp(x)).
func Softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func clamp01(x float64) float64 { return math.Min(math.Max(x, 0), 1) }

func geluErf(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }

// GeluTanh returns GELU by its approximation with tanh.
func GeluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// withAlpha is an activation with the attribute alpha.
func withAlpha(def float32, f func(x, alpha float64) float64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		alpha := c.Float("alpha", float64(def))
		return unary(func(x float64) float64 { return f(x, alpha) }, nil)(c)
	}
}

func opGelu(c *op.Call) []*tensor.Tensor {
	gelu, ok := map[string]func(float64) float64{"none": geluErf, "tanh": GeluTanh}[c.Str("approximate", "none")]
	if !ok {
		tensor.Fail("approximate is %q, expected none or tanh", c.Str("approximate", ""))
	}
	return unary(gelu, nil)(c)
}

// opBiasGelu first adds an optional bias over the last dimension.
func opBiasGelu(gelu func(float64) float64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		x := c.Floats(0)
		if b := c.Arg(1); b != nil {
			c.SameType(0, 1)
			x = Combine(c, x, b, Add, nil, nil)
		}
		return op.One(tensor.NewFloats(x.DataType, x.Shape, tensor.MapSlice(x.F, gelu)))
	}
}

func opHardSigmoid(c *op.Call) []*tensor.Tensor {
	alpha, beta := c.Float("alpha", float64(float32(0.2))), c.Float("beta", 0.5)
	return unary(func(x float64) float64 { return clamp01(alpha*x + beta) }, nil)(c)
}

func opSelu(c *op.Call) []*tensor.Tensor {
	alpha, gamma := c.Float("alpha", 1.67326319217681884765625), c.Float("gamma", 1.05070102214813232421875)
	return unary(func(x float64) float64 { return gamma * tensor.Pick(x <= 0, alpha*math.Expm1(x), x) }, nil)(c)
}

// opShrink moves values outside [-lambd, lambd] towards zero by bias, and sets the others to zero.
func opShrink(c *op.Call) []*tensor.Tensor {
	bias, lambd := c.Float("bias", 0), c.Float("lambd", 0.5)
	f := func(x float64) float64 {
		switch {
		case x < -lambd:
			return x + bias
		case x > lambd:
			return x - bias
		}
		return 0
	}
	return unary(f, func(x int64) int64 { return tensor.Truncate(f(float64(x))) })(c)
}
