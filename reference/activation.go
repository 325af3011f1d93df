package reference

import "math"

// Activations compute in float64 and are rounded once, at the end.
var activationOps = map[string]opDef{
	"Sigmoid":         arith(1, unary(sigmoid, nil)),
	"Softplus":        arith(1, unary(softplus, nil)),
	"Softsign":        arith(1, unary(func(x float64) float64 { return x / (1 + math.Abs(x)) }, nil)),
	"HardSwish":       arith(1, unary(func(x float64) float64 { return x * clamp01(x/6+0.5) }, nil)),
	"Mish":            arith(1, unary(func(x float64) float64 { return x * math.Tanh(softplus(x)) }, nil)),
	"LeakyRelu":       arith(1, withAlpha(0.01, func(x, alpha float64) float64 { return pick(x < 0, alpha*x, x) })),
	"ThresholdedRelu": arith(1, withAlpha(1, func(x, alpha float64) float64 { return pick(x > alpha, x, 0) })),
	"Elu": arith(1, withAlpha(1, func(x, alpha float64) float64 {
		return pick(x < 0, alpha*math.Expm1(x), x)
	})),
	"Celu": arith(1, withAlpha(1, func(x, alpha float64) float64 {
		return math.Max(x, 0) + math.Min(0, alpha*math.Expm1(x/alpha))
	})),
	"Swish":       arith(1, withAlpha(1, swish)),
	"HardSigmoid": arith(1, opHardSigmoid),
	"Selu":        arith(1, opSelu),
	"Shrink":      arith(1, opShrink),
	"Gelu":        arith(1, opGelu),

	"com.microsoft:Gelu":      arith(1, unary(geluErf, nil)),
	"com.microsoft:QuickGelu": arith(1, withAlpha(1.702, swish)),
	"com.microsoft:FastGelu":  arith(1, opBiasGelu(geluTanh)),
	"com.microsoft:BiasGelu":  arith(2, opBiasGelu(geluErf)),
}

func sigmoid(x float64) float64 {
	if x < 0 { // keeps exp from overflowing
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

func swish(x, alpha float64) float64 { return x * sigmoid(alpha*x) }

func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func clamp01(x float64) float64 { return math.Min(math.Max(x, 0), 1) }

func geluErf(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }

func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// withAlpha is an activation with the attribute alpha.
func withAlpha(def float32, f func(x, alpha float64) float64) opFunc {
	return func(c *call) []*Tensor {
		alpha := c.float("alpha", float64(def))
		return unary(func(x float64) float64 { return f(x, alpha) }, nil)(c)
	}
}

func opGelu(c *call) []*Tensor {
	gelu, ok := map[string]func(float64) float64{"none": geluErf, "tanh": geluTanh}[c.str("approximate", "none")]
	if !ok {
		fail("approximate is %q, expected none or tanh", c.str("approximate", ""))
	}
	return unary(gelu, nil)(c)
}

// opBiasGelu first adds an optional bias over the last dimension.
func opBiasGelu(gelu func(float64) float64) opFunc {
	return func(c *call) []*Tensor {
		x := c.floats(0)
		if b := c.arg(1); b != nil {
			c.sameType(0, 1)
			x = combine(c, x, b, add, nil, nil)
		}
		return one(NewFloats(x.DataType, x.Shape, mapSlice(x.F, gelu)))
	}
}

func opHardSigmoid(c *call) []*Tensor {
	alpha, beta := c.float("alpha", float64(float32(0.2))), c.float("beta", 0.5)
	return unary(func(x float64) float64 { return clamp01(alpha*x + beta) }, nil)(c)
}

func opSelu(c *call) []*Tensor {
	alpha, gamma := c.float("alpha", 1.67326319217681884765625), c.float("gamma", 1.05070102214813232421875)
	return unary(func(x float64) float64 { return gamma * pick(x <= 0, alpha*math.Expm1(x), x) }, nil)(c)
}

// opShrink moves values outside [-lambd, lambd] towards zero by bias, and sets the others to zero.
func opShrink(c *call) []*Tensor {
	bias, lambd := c.float("bias", 0), c.float("lambd", 0.5)
	f := func(x float64) float64 {
		switch {
		case x < -lambd:
			return x + bias
		case x > lambd:
			return x - bias
		}
		return 0
	}
	return unary(f, func(x int64) int64 { return truncate(f(float64(x))) })(c)
}
