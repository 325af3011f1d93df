package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

var unaryOps = map[string]opDef{
	"Abs":  arith(1, unary(math.Abs, func(x int64) int64 { return max(x, -x) })),
	"Neg":  arith(1, unary(func(x float64) float64 { return -x }, func(x int64) int64 { return -x })),
	"Sign": arith(1, unary(sign, func(x int64) int64 { return pick[int64](x > 0, 1, pick[int64](x < 0, -1, 0)) })),
	"Relu": arith(1, unary(func(x float64) float64 { return pick(x < 0, 0, x) },
		func(x int64) int64 { return max(x, 0) })),
	"Sqrt":       arith(1, unary(math.Sqrt, nil)),
	"Reciprocal": arith(1, unary(func(x float64) float64 { return 1 / x }, nil)),
	"Exp":        arith(1, unary(math.Exp, nil)),
	"Log":        arith(1, unary(math.Log, nil)),
	"Floor":      arith(1, unary(math.Floor, nil)),
	"Ceil":       arith(1, unary(math.Ceil, nil)),
	"Round":      arith(1, unary(math.RoundToEven, nil)),
	"Sin":        arith(1, unary(math.Sin, nil)),
	"Cos":        arith(1, unary(math.Cos, nil)),
	"Tan":        arith(1, unary(math.Tan, nil)),
	"Asin":       arith(1, unary(math.Asin, nil)),
	"Acos":       arith(1, unary(math.Acos, nil)),
	"Atan":       arith(1, unary(math.Atan, nil)),
	"Sinh":       arith(1, unary(math.Sinh, nil)),
	"Cosh":       arith(1, unary(math.Cosh, nil)),
	"Tanh":       arith(1, unary(math.Tanh, nil)),
	"Asinh":      arith(1, unary(math.Asinh, nil)),
	"Acosh":      arith(1, unary(math.Acosh, nil)),
	"Atanh":      arith(1, unary(math.Atanh, nil)),
	"Erf":        arith(1, unary(math.Erf, nil)),
	"IsNaN":      exact(1, opIsNaN),
	"IsInf":      exact(1, opIsInf),
	"Not":        exact(1, opNot),
	"BitwiseNot": arith(1, unary(nil, func(x int64) int64 { return ^x })),
	"Clip":       arith(1, opClip),
	"CumSum":     arith(2, opCumSum),
	"CumProd":    arith(2, opCumSum),
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// unary is an elementwise op of one input.
func unary(ff func(float64) float64, fi func(int64) int64) opFunc {
	return func(c *call) []*Tensor {
		x := c.in[0]
		r := &Tensor{DataType: x.DataType, Shape: x.Shape}
		switch {
		case x.IsFloat() && ff != nil:
			r.F = mapSlice(x.F, ff)
		case isInt(x.DataType) && fi != nil:
			r.I = mapSlice(x.I, fi)
		default:
			fail("no %s of %s", c.n.OpType, x.DataType)
		}
		return one(r)
	}
}

func mapSlice[A, R any](v []A, f func(A) R) []R {
	r := make([]R, len(v))
	for i, x := range v {
		r[i] = f(x)
	}
	return r
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func opIsNaN(c *call) []*Tensor {
	x := c.floats(0)
	return one(NewInts(onnx.Bool, x.Shape, mapSlice(x.F, func(v float64) int64 { return boolInt(v != v) })))
}

func opIsInf(c *call) []*Tensor {
	x := c.floats(0)
	pos, neg := c.int("detect_positive", 1) != 0, c.int("detect_negative", 1) != 0
	return one(NewInts(onnx.Bool, x.Shape, mapSlice(x.F, func(v float64) int64 {
		return boolInt(pos && math.IsInf(v, 1) || neg && math.IsInf(v, -1))
	})))
}

func opNot(c *call) []*Tensor {
	if c.in[0].DataType != onnx.Bool {
		fail("no Not of %s", c.in[0].DataType)
	}
	return one(NewInts(onnx.Bool, c.in[0].Shape, mapSlice(c.in[0].I, func(v int64) int64 { return 1 - v })))
}

// opClip takes its bounds as attributes before opset 11, as inputs from then on. If min > max the result is max.
func opClip(c *call) []*Tensor {
	x := c.in[0]
	r := &Tensor{DataType: x.DataType, Shape: x.Shape}
	switch {
	case x.IsFloat():
		lo := c.number(1, c.float("min", math.Inf(-1)))
		hi := c.number(2, c.float("max", math.Inf(1)))
		r.F = mapSlice(x.F, func(v float64) float64 {
			if v < lo {
				v = lo
			}
			if v > hi {
				v = hi
			}
			return v
		})
	case x.DataType == onnx.Uint64:
		lo, hi := uint64(c.integer(1, 0)), uint64(c.integer(2, -1))
		r.I = mapSlice(x.I, func(v int64) int64 { return int64(min(max(uint64(v), lo), hi)) })
	default:
		lo, hi := elements.Range(x.DataType)
		lo, hi = c.integer(1, lo), c.integer(2, hi)
		r.I = mapSlice(x.I, func(v int64) int64 { return min(max(v, lo), hi) })
	}
	return one(r)
}

// opCumSum is CumSum and CumProd: running sums (products) along an axis, with or without the element itself, from the
// end if reversed.
func opCumSum(c *call) []*Tensor {
	x := c.in[0]
	axis := c.axis(c.integer(1, 0), x.Rank())
	exclusive, reverse := c.int("exclusive", 0) != 0, c.int("reverse", 0) != 0
	r := &Tensor{DataType: x.DataType, Shape: x.Shape}
	n, inner := x.Shape[axis], size(x.Shape[axis+1:])
	prod := c.n.OpType == "CumProd"
	if x.IsFloat() {
		r.F = scan(x.F, n, inner, exclusive, reverse, prod)
	} else {
		r.I = scan(x.I, n, inner, exclusive, reverse, prod)
	}
	return one(r)
}

func scan[T int64 | float64](x []T, n, inner int, exclusive, reverse, prod bool) []T {
	r := slices.Clone(x)
	alongAxis(r, n, inner, func(line []T) {
		if reverse {
			slices.Reverse(line)
			defer slices.Reverse(line)
		}
		acc := T(boolInt(prod))
		for i, v := range line {
			before := acc
			if prod {
				acc *= v
			} else {
				acc += v
			}
			line[i] = pick(exclusive, before, acc)
		}
	})
	return r
}
