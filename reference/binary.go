package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var binaryOps = map[string]opDef{
	"Add":   arith(2, inLines(addLine, add, nil)),
	"Sub":   arith(2, inLines(subtractLine, subtract, nil)),
	"Mul":   arith(2, inLines(multiplyLine, multiply, nil)),
	"Div":   arith(2, inLines(divideLine, quotient, quotient)),
	"Pow":   arith(2, opPow),
	"Mod":   arith(2, opMod),
	"PRelu": arith(2, numeric(prelu, prelu, nil)),

	// math.Max and math.Min return NaN if one operand is NaN, like numpy.maximum.
	"Max":  arith(1, variadic(math.Max, greater, greater)),
	"Min":  arith(1, variadic(math.Min, lesser, lesser)),
	"Sum":  arith(1, variadic(add, nil, nil)),
	"Mean": arith(1, opMean),
}

type number interface{ int64 | uint64 | float64 }

func add[T number](x, y T) T       { return x + y }
func subtract[T number](x, y T) T  { return x - y }
func multiply[T number](x, y T) T  { return x * y }
func greater[T number](x, y T) T   { return max(x, y) }
func lesser[T number](x, y T) T    { return min(x, y) }
func prelu[T number](x, slope T) T { return pick(x < 0, x*slope, x) }

func pick[T any](b bool, x, y T) T {
	if b {
		return x
	}
	return y
}

// quotient truncates like C. A division by zero, which the standard leaves open, returns 0.
func quotient[T int64 | uint64](x, y T) T {
	if y == 0 {
		return 0
	}
	return x / y
}

// remainder is the remainder of quotient, with the sign of x, and 0 for a division by zero.
func remainder[T int64 | uint64](x, y T) T {
	if y == 0 {
		return 0
	}
	return x % y
}

// numeric is a broadcasting elementwise op of two inputs of one type. fu is for uint64 if the sign matters.
func numeric(ff func(x, y float64) float64, fi func(x, y int64) int64, fu func(x, y uint64) uint64) opFunc {
	return func(c *call) []*Tensor {
		c.sameType(0, 1)
		return one(combine(c, c.in[0], c.legacyBroadcast(), ff, fi, fu))
	}
}

// inLines is numeric with a line for floats.
func inLines(f line, fi func(x, y int64) int64, fu func(x, y uint64) uint64) opFunc {
	return func(c *call) []*Tensor {
		c.sameType(0, 1)
		a, b := c.in[0], c.legacyBroadcast()
		if !a.IsFloat() {
			return one(combine(c, a, b, nil, fi, fu))
		}
		out := broadcastShape(a.Shape, b.Shape)
		return one(&Tensor{DataType: a.DataType, Shape: out, F: zipLines(a.F, a.Shape, b.F, b.Shape, out, f)})
	}
}

func combine(c *call, a, b *Tensor, ff func(x, y float64) float64, fi func(x, y int64) int64,
	fu func(x, y uint64) uint64) *Tensor {
	out := broadcastShape(a.Shape, b.Shape)
	r := &Tensor{DataType: a.DataType, Shape: out}
	switch {
	case a.IsFloat() && ff != nil:
		r.F = zipWith(a.F, a.Shape, b.F, b.Shape, out, ff)
	case a.DataType == onnx.Uint64 && fu != nil:
		r.I = zipWith(a.I, a.Shape, b.I, b.Shape, out, func(x, y int64) int64 {
			return int64(fu(uint64(x), uint64(y)))
		})
	case isInt(a.DataType) && fi != nil:
		r.I = zipWith(a.I, a.Shape, b.I, b.Shape, out, fi)
	default:
		fail("no %s of %s", c.n.OpType, a.DataType)
	}
	return r
}

// legacyBroadcast returns input 1 in the shape that opsets before 7 mean: the attribute axis aligns its dimensions with
// the dimensions of input 0.
func (c *call) legacyBroadcast() *Tensor {
	a, b := c.in[0], c.in[1]
	if c.opset() >= 7 || c.int("broadcast", 0) == 0 || c.attr("axis") == nil {
		return b
	}
	axis := c.axis(c.int("axis", 0), max(a.Rank(), 1))
	shape := append([]int{}, b.Shape...)
	for len(shape) < a.Rank()-axis {
		shape = append(shape, 1)
	}
	return b.WithShape(shape)
}

// variadic folds any number of inputs.
func variadic(ff func(x, y float64) float64, fi func(x, y int64) int64, fu func(x, y uint64) uint64) opFunc {
	return func(c *call) []*Tensor {
		acc := c.in[0]
		for i := 1; i < len(c.in); i++ {
			if c.in[i] == nil {
				fail("input %d is missing", i)
			}
			c.sameType(0, i)
			acc = combine(c, acc, c.in[i], ff, fi, fu)
		}
		if len(c.in) == 1 { // the dispatcher rounds in place, which must not change the input
			acc = acc.clone()
		}
		return one(acc)
	}
}

func (t *Tensor) clone() *Tensor {
	r := t.WithShape(t.Shape)
	r.F, r.I = slices.Clone(t.F), slices.Clone(t.I)
	return r
}

func opMean(c *call) []*Tensor {
	r := variadic(add, nil, nil)(c)
	for i := range r[0].F {
		r[0].F[i] /= float64(len(c.in))
	}
	return r
}

// opPow takes an exponent of another type than the base (opset 12); the result has the base's type.
func opPow(c *call) []*Tensor {
	a, b := c.in[0], c.in[1]
	out := broadcastShape(a.Shape, b.Shape)
	r := &Tensor{DataType: a.DataType, Shape: out}
	switch {
	case a.IsFloat():
		r.F = zipWith(a.F, a.Shape, b.Floats(), b.Shape, out, powFloat)
	case !b.IsFloat():
		r.I = zipWith(a.I, a.Shape, b.I, b.Shape, out, powInt)
	default:
		r.I = zipWith(a.Floats(), a.Shape, b.F, b.Shape, out, func(x, y float64) int64 {
			return truncate(math.Pow(x, y))
		})
	}
	return one(r)
}

func powFloat(x, y float64) float64 {
	if y == 2 {
		return x * x
	}
	return math.Pow(x, y)
}

func powInt(x, y int64) int64 {
	if y < 0 {
		switch x {
		case 1:
			return 1
		case -1:
			return 1 - 2*(y&1)
		}
		return 0
	}
	r := int64(1)
	for ; y > 0; y >>= 1 {
		if y&1 == 1 {
			r *= x
		}
		x *= x
	}
	return r
}

// opMod follows the sign of the divisor (Python's %), or with fmod=1 the sign of the dividend (C's fmod).
func opMod(c *call) []*Tensor {
	c.sameType(0, 1)
	ff, fi := math.Mod, remainder[int64]
	if c.int("fmod", 0) != 1 {
		ff, fi = floorMod(ff), floorMod(fi)
	}
	return one(combine(c, c.in[0], c.in[1], ff, fi, remainder))
}

// floorMod makes a remainder follow the sign of the divisor.
func floorMod[T number](remainder func(x, y T) T) func(x, y T) T {
	return func(x, y T) T {
		m := remainder(x, y)
		if m != 0 && (m < 0) != (y < 0) {
			m += y
		}
		return m
	}
}
