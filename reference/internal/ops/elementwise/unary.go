package elementwise

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var unaryOps = map[string]op.Def{
	"Abs": op.Arith(1, unary(math.Abs, func(x int64) int64 { return max(x, -x) })),
	"Neg": op.Arith(1, unary(func(x float64) float64 { return -x }, func(x int64) int64 { return -x })),
	"Sign": op.Arith(1, unary(sign, func(x int64) int64 {
		return tensor.Pick[int64](x > 0, 1, tensor.Pick[int64](x < 0, -1, 0))
	})),
	"Relu": op.Arith(1, unary(func(x float64) float64 { return tensor.Pick(x < 0, 0, x) },
		func(x int64) int64 { return max(x, 0) })),
	"Sqrt":       op.Arith(1, unary(math.Sqrt, nil)),
	"Reciprocal": op.Arith(1, unary(func(x float64) float64 { return 1 / x }, nil)),
	"Exp":        op.Arith(1, unary(math.Exp, nil)),
	"Log":        op.Arith(1, unary(math.Log, nil)),
	"Floor":      op.Arith(1, unary(math.Floor, nil)),
	"Ceil":       op.Arith(1, unary(math.Ceil, nil)),
	"Round":      op.Arith(1, unary(math.RoundToEven, nil)),
	"Sin":        op.Arith(1, unary(math.Sin, nil)),
	"Cos":        op.Arith(1, unary(math.Cos, nil)),
	"Tan":        op.Arith(1, unary(math.Tan, nil)),
	"Asin":       op.Arith(1, unary(math.Asin, nil)),
	"Acos":       op.Arith(1, unary(math.Acos, nil)),
	"Atan":       op.Arith(1, unary(math.Atan, nil)),
	"Sinh":       op.Arith(1, unary(math.Sinh, nil)),
	"Cosh":       op.Arith(1, unary(math.Cosh, nil)),
	"Tanh":       op.Arith(1, unary(math.Tanh, nil)),
	"Asinh":      op.Arith(1, unary(math.Asinh, nil)),
	"Acosh":      op.Arith(1, unary(math.Acosh, nil)),
	"Atanh":      op.Arith(1, unary(math.Atanh, nil)),
	"Erf":        op.Arith(1, unary(math.Erf, nil)),
	"IsNaN":      op.Exact(1, opIsNaN),
	"IsInf":      op.Exact(1, opIsInf),
	"Not":        op.Exact(1, opNot),
	"BitwiseNot": op.Arith(1, unary(nil, func(x int64) int64 { return ^x })),
	"Clip":       op.Arith(1, opClip),
	"CumSum":     op.Arith(2, opCumSum),
	"CumProd":    op.Arith(2, opCumSum),
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
func unary(ff func(float64) float64, fi func(int64) int64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		x := c.In[0]
		r := &tensor.Tensor{DataType: x.DataType, Shape: x.Shape}
		switch {
		case x.IsFloat() && ff != nil:
			r.F = tensor.MapSlice(x.F, ff)
		case tensor.IsIntType(x.DataType) && fi != nil:
			r.I = tensor.MapSlice(x.I, fi)
		default:
			tensor.Fail("no %s of %s", c.Node.OpType, x.DataType)
		}
		return op.One(r)
	}
}

func opIsNaN(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	return op.One(tensor.NewInts(onnx.Bool, x.Shape,
		tensor.MapSlice(x.F, func(v float64) int64 { return tensor.BoolInt(v != v) })))
}

func opIsInf(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	pos, neg := c.Int("detect_positive", 1) != 0, c.Int("detect_negative", 1) != 0
	return op.One(tensor.NewInts(onnx.Bool, x.Shape, tensor.MapSlice(x.F, func(v float64) int64 {
		return tensor.BoolInt(pos && math.IsInf(v, 1) || neg && math.IsInf(v, -1))
	})))
}

func opNot(c *op.Call) []*tensor.Tensor {
	if c.In[0].DataType != onnx.Bool {
		tensor.Fail("no Not of %s", c.In[0].DataType)
	}
	return op.One(tensor.NewInts(onnx.Bool, c.In[0].Shape,
		tensor.MapSlice(c.In[0].I, func(v int64) int64 { return 1 - v })))
}

// opClip takes its bounds as attributes before opset 11, as inputs from then on. If min > max the result is max.
func opClip(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	r := &tensor.Tensor{DataType: x.DataType, Shape: x.Shape}
	switch {
	case x.IsFloat():
		lo := c.Number(1, c.Float("min", math.Inf(-1)))
		hi := c.Number(2, c.Float("max", math.Inf(1)))
		r.F = tensor.MapSlice(x.F, func(v float64) float64 {
			if v < lo {
				v = lo
			}
			if v > hi {
				v = hi
			}
			return v
		})
	case x.DataType == onnx.Uint64:
		lo, hi := uint64(c.Integer(1, 0)), uint64(c.Integer(2, -1))
		r.I = tensor.MapSlice(x.I, func(v int64) int64 { return int64(min(max(uint64(v), lo), hi)) })
	default:
		lo, hi := elements.Range(x.DataType)
		lo, hi = c.Integer(1, lo), c.Integer(2, hi)
		r.I = tensor.MapSlice(x.I, func(v int64) int64 { return min(max(v, lo), hi) })
	}
	return op.One(r)
}

// opCumSum is CumSum and CumProd: running sums (products) along an axis, with or without the element itself, from the
// end if reversed.
func opCumSum(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	axis := c.Axis(c.Integer(1, 0), x.Rank())
	exclusive, reverse := c.Int("exclusive", 0) != 0, c.Int("reverse", 0) != 0
	r := &tensor.Tensor{DataType: x.DataType, Shape: x.Shape}
	n, inner := x.Shape[axis], tensor.Size(x.Shape[axis+1:])
	prod := c.Node.OpType == "CumProd"
	if x.IsFloat() {
		r.F = scan(x.F, n, inner, exclusive, reverse, prod)
	} else {
		r.I = scan(x.I, n, inner, exclusive, reverse, prod)
	}
	return op.One(r)
}

func scan[T int64 | float64](x []T, n, inner int, exclusive, reverse, prod bool) []T {
	r := slices.Clone(x)
	tensor.AlongAxis(r, n, inner, func(line []T) {
		if reverse {
			slices.Reverse(line)
			defer slices.Reverse(line)
		}
		acc := T(tensor.BoolInt(prod))
		for i, v := range line {
			before := acc
			if prod {
				acc *= v
			} else {
				acc += v
			}
			line[i] = tensor.Pick(exclusive, before, acc)
		}
	})
	return r
}
