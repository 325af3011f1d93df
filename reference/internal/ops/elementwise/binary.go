package elementwise

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var binaryOps = map[string]op.Def{
	"Add":   op.Arith(2, inLines(tensor.AddLine, Add, nil)),
	"Sub":   op.Arith(2, inLines(tensor.SubtractLine, Subtract, nil)),
	"Mul":   op.Arith(2, inLines(tensor.MultiplyLine, Multiply, nil)),
	"Div":   op.Arith(2, inLines(tensor.DivideLine, quotient, quotient)),
	"Pow":   op.Arith(2, opPow),
	"Mod":   op.Arith(2, opMod),
	"PRelu": op.Arith(2, numeric(prelu, prelu, nil)),

	// math.Max and math.Min return NaN if one operand is NaN, like numpy.maximum.
	"Max":  op.Arith(1, variadic(math.Max, Greater, Greater)),
	"Min":  op.Arith(1, variadic(math.Min, Lesser, Lesser)),
	"Sum":  op.Arith(1, variadic(Add, nil, nil)),
	"Mean": op.Arith(1, opMean),
}

// Number is the type of elements in lists of numbers.
type Number interface{ int64 | uint64 | float64 }

// Add returns x + y.
func Add[T Number](x, y T) T { return x + y }

// Subtract returns x - y.
func Subtract[T Number](x, y T) T { return x - y }

// Multiply returns x·y.
func Multiply[T Number](x, y T) T { return x * y }

// Greater returns the larger number.
func Greater[T Number](x, y T) T { return max(x, y) }

// Lesser returns the smaller number.
func Lesser[T Number](x, y T) T { return min(x, y) }

func prelu[T Number](x, slope T) T { return tensor.Pick(x < 0, x*slope, x) }

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
func numeric(ff func(x, y float64) float64, fi func(x, y int64) int64, fu func(x, y uint64) uint64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		c.SameType(0, 1)
		return op.One(Combine(c, c.In[0], legacyBroadcast(c), ff, fi, fu))
	}
}

// inLines is numeric with a line for floats.
func inLines(f tensor.Line, fi func(x, y int64) int64, fu func(x, y uint64) uint64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		c.SameType(0, 1)
		a, b := c.In[0], legacyBroadcast(c)
		if !a.IsFloat() {
			return op.One(Combine(c, a, b, nil, fi, fu))
		}
		out := tensor.BroadcastShape(a.Shape, b.Shape)
		return op.One(&tensor.Tensor{DataType: a.DataType, Shape: out,
			F: tensor.ZipLines(a.F, a.Shape, b.F, b.Shape, out, f)})
	}
}

// Combine applies the function for the type of a to elements of a and b, broadcast. It fails if there is none.
func Combine(c *op.Call, a, b *tensor.Tensor, ff func(x, y float64) float64, fi func(x, y int64) int64,
	fu func(x, y uint64) uint64) *tensor.Tensor {
	out := tensor.BroadcastShape(a.Shape, b.Shape)
	r := &tensor.Tensor{DataType: a.DataType, Shape: out}
	switch {
	case a.IsFloat() && ff != nil:
		r.F = tensor.ZipWith(a.F, a.Shape, b.F, b.Shape, out, ff)
	case a.DataType == onnx.Uint64 && fu != nil:
		r.I = tensor.ZipWith(a.I, a.Shape, b.I, b.Shape, out, func(x, y int64) int64 {
			return int64(fu(uint64(x), uint64(y)))
		})
	case tensor.IsIntType(a.DataType) && fi != nil:
		r.I = tensor.ZipWith(a.I, a.Shape, b.I, b.Shape, out, fi)
	default:
		tensor.Fail("no %s of %s", c.Node.OpType, a.DataType)
	}
	return r
}

// legacyBroadcast returns input 1 in the shape that opsets before 7 mean: the attribute axis aligns its dimensions with
// the dimensions of input 0.
func legacyBroadcast(c *op.Call) *tensor.Tensor {
	a, b := c.In[0], c.In[1]
	if c.Opset() >= 7 || c.Int("broadcast", 0) == 0 || c.Attr("axis") == nil {
		return b
	}
	axis := c.Axis(c.Int("axis", 0), max(a.Rank(), 1))
	shape := append([]int{}, b.Shape...)
	for len(shape) < a.Rank()-axis {
		shape = append(shape, 1)
	}
	return b.WithShape(shape)
}

// variadic folds any number of inputs.
func variadic(ff func(x, y float64) float64, fi func(x, y int64) int64, fu func(x, y uint64) uint64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		acc := c.In[0]
		for i := 1; i < len(c.In); i++ {
			if c.In[i] == nil {
				tensor.Fail("input %d is missing", i)
			}
			c.SameType(0, i)
			acc = Combine(c, acc, c.In[i], ff, fi, fu)
		}
		if len(c.In) == 1 { // the dispatcher rounds in place, which must not change the input
			acc = clone(acc)
		}
		return op.One(acc)
	}
}

func clone(t *tensor.Tensor) *tensor.Tensor {
	r := t.WithShape(t.Shape)
	r.F, r.I = slices.Clone(t.F), slices.Clone(t.I)
	return r
}

func opMean(c *op.Call) []*tensor.Tensor {
	r := variadic(Add, nil, nil)(c)
	for i := range r[0].F {
		r[0].F[i] /= float64(len(c.In))
	}
	return r
}

// opPow takes an exponent of another type than the base (opset 12); the result has the base's type.
func opPow(c *op.Call) []*tensor.Tensor {
	a, b := c.In[0], c.In[1]
	out := tensor.BroadcastShape(a.Shape, b.Shape)
	r := &tensor.Tensor{DataType: a.DataType, Shape: out}
	switch {
	case a.IsFloat():
		r.F = tensor.ZipWith(a.F, a.Shape, b.Floats(), b.Shape, out, powFloat)
	case !b.IsFloat():
		r.I = tensor.ZipWith(a.I, a.Shape, b.I, b.Shape, out, powInt)
	default:
		r.I = tensor.ZipWith(a.Floats(), a.Shape, b.F, b.Shape, out, func(x, y float64) int64 {
			return tensor.Truncate(math.Pow(x, y))
		})
	}
	return op.One(r)
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
func opMod(c *op.Call) []*tensor.Tensor {
	c.SameType(0, 1)
	ff, fi := math.Mod, remainder[int64]
	if c.Int("fmod", 0) != 1 {
		ff, fi = floorMod(ff), floorMod(fi)
	}
	return op.One(Combine(c, c.In[0], c.In[1], ff, fi, remainder))
}

// floorMod makes a remainder follow the sign of the divisor.
func floorMod[T Number](remainder func(x, y T) T) func(x, y T) T {
	return func(x, y T) T {
		m := remainder(x, y)
		if m != 0 && (m < 0) != (y < 0) {
			m += y
		}
		return m
	}
}
