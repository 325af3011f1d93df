package reference

import "math"

// Activations compute in float64 and are rounded once, at the end.
var activationOps = map[string]opDef{
	"Sigmoid":         arith(1, unary(sigmoid, nil)),
	"Softplus":        arith(1, unary(softplus, nil)),
	"Softsign":        arith(1, unary(func(x float64) float64 { return x / (1 + math.Abs(x)) }, nil)),
	"HardSwish":       arith(1, unary(func(x float64) float64 { return x * clamp01(x/6+0.5) }, nil)),
	"Mish":            arith(1, unary(func(x float64) float64 { return x * math.Tanh(softplus(x)) }, nil)),
	"HardSigmoid":     arith(1, opHardSigmoid),
	"LeakyRelu":       arith(1, opLeakyRelu),
	"ThresholdedRelu": arith(1, opThresholdedRelu),
	"Elu":             arith(1, opElu),
	"Celu":            arith(1, opCelu),
	"Selu":            arith(1, opSelu),
	"Shrink":          arith(1, opShrink),
	"Gelu":            arith(1, opGelu),
	"Swish":           arith(1, opSwish),

	"com.microsoft:Gelu":      arith(1, unary(geluErf, nil)),
	"com.microsoft:QuickGelu": arith(1, opQuickGelu),
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

func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func clamp01(x float64) float64 { return math.Min(math.Max(x, 0), 1) }

func geluErf(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }

func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func opGelu(c *call) ([]*Tensor, error) {
	switch a := c.str("approximate", "none"); a {
	case "none":
		return unary(geluErf, nil)(c)
	case "tanh":
		return unary(geluTanh, nil)(c)
	default:
		c.fail("approximate is %q, expected none or tanh", a)
		return nil, c.err
	}
}

// opSwish is x * sigmoid(alpha * x).
func opSwish(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", 1)
	return unary(func(x float64) float64 { return x * sigmoid(alpha*x) }, nil)(c)
}

func opQuickGelu(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", float64(float32(1.702)))
	return unary(func(x float64) float64 { return x * sigmoid(alpha*x) }, nil)(c)
}

// opBiasGelu adds an optional bias over the last dimension first.
func opBiasGelu(gelu func(float64) float64) opFunc {
	return func(c *call) ([]*Tensor, error) {
		x := c.floats(0)
		if b := c.arg(1); b != nil {
			if !c.sameType(0, 1) {
				return nil, c.err
			}
			sum, err := combine(c, x, b, func(x, y float64) float64 { return x + y }, nil, nil)
			if err != nil {
				return nil, err
			}
			x = sum[0]
		}
		return one(NewFloats(x.DataType, x.Shape, mapSlice(x.F, gelu)))
	}
}

func opHardSigmoid(c *call) ([]*Tensor, error) {
	alpha, beta := c.float("alpha", float64(float32(0.2))), c.float("beta", 0.5)
	return unary(func(x float64) float64 { return clamp01(alpha*x + beta) }, nil)(c)
}

func opLeakyRelu(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", float64(float32(0.01)))
	return unary(func(x float64) float64 { return pick(x < 0, alpha*x, x) }, nil)(c)
}

func opThresholdedRelu(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", 1)
	return unary(func(x float64) float64 { return pick(x > alpha, x, 0) }, nil)(c)
}

func opElu(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", 1)
	return unary(func(x float64) float64 { return pick(x < 0, alpha*math.Expm1(x), x) }, nil)(c)
}

func opCelu(c *call) ([]*Tensor, error) {
	alpha := c.float("alpha", 1)
	return unary(func(x float64) float64 { return math.Max(x, 0) + math.Min(0, alpha*math.Expm1(x/alpha)) }, nil)(c)
}

func opSelu(c *call) ([]*Tensor, error) {
	alpha, gamma := c.float("alpha", 1.67326319217681884765625), c.float("gamma", 1.05070102214813232421875)
	return unary(func(x float64) float64 { return gamma * pick(x <= 0, alpha*math.Expm1(x), x) }, nil)(c)
}

// opShrink moves what lies outside [-lambd, lambd] towards zero by bias, and makes the rest zero.
func opShrink(c *call) ([]*Tensor, error) {
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
