package elementwise

import (
	"cmp"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var logicOps = map[string]op.Def{
	"Equal":          op.Plain(2, comparison(func(c int) bool { return c == 0 })),
	"Less":           op.Plain(2, comparison(func(c int) bool { return c == -1 })),
	"LessOrEqual":    op.Plain(2, comparison(func(c int) bool { return c == -1 || c == 0 })),
	"Greater":        op.Plain(2, comparison(func(c int) bool { return c == 1 })),
	"GreaterOrEqual": op.Plain(2, comparison(func(c int) bool { return c == 1 || c == 0 })),

	"And": op.Exact(2, boolean(func(x, y int64) int64 { return x & y })),
	"Or":  op.Exact(2, boolean(func(x, y int64) int64 { return x | y })),
	"Xor": op.Exact(2, boolean(func(x, y int64) int64 { return x ^ y })),

	"BitwiseAnd": op.Arith(2, numeric(nil, func(x, y int64) int64 { return x & y }, nil)),
	"BitwiseOr":  op.Arith(2, numeric(nil, func(x, y int64) int64 { return x | y }, nil)),
	"BitwiseXor": op.Arith(2, numeric(nil, func(x, y int64) int64 { return x ^ y }, nil)),
	"BitShift":   op.Arith(2, opBitShift),
	"Where":      op.Plain(3, opWhere),
}

// unordered is the result of CompareFloat if one side is NaN: no comparison holds.
const unordered = 2

// CompareFloat returns -1, 0 or 1, or another number if a side is NaN.
func CompareFloat(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return 0
	}
	return unordered
}

// comparison is an op of two inputs of one type to bool. holds takes -1, 0, 1 or unordered.
func comparison(holds func(int) bool) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		c.SameType(0, 1)
		a, b := c.In[0], legacyBroadcast(c)
		out := tensor.BroadcastShape(a.Shape, b.Shape)
		r := &tensor.Tensor{DataType: onnx.Bool, Shape: out}
		test := func(c int) int64 { return tensor.BoolInt(holds(c)) }
		switch {
		case a.IsFloat():
			r.I = tensor.ZipWith(a.F, a.Shape, b.F, b.Shape, out,
				func(x, y float64) int64 { return test(CompareFloat(x, y)) })
		case a.DataType == onnx.String:
			r.I = tensor.ZipWith(a.S, a.Shape, b.S, b.Shape, out,
				func(x, y string) int64 { return test(cmp.Compare(x, y)) })
		case a.DataType == onnx.Uint64:
			r.I = tensor.ZipWith(a.I, a.Shape, b.I, b.Shape, out, func(x, y int64) int64 {
				return test(cmp.Compare(uint64(x), uint64(y)))
			})
		default:
			r.I = tensor.ZipWith(a.I, a.Shape, b.I, b.Shape, out,
				func(x, y int64) int64 { return test(cmp.Compare(x, y)) })
		}
		return op.One(r)
	}
}

func boolean(f func(x, y int64) int64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		if c.In[0].DataType != onnx.Bool || c.In[1].DataType != onnx.Bool {
			tensor.Fail("inputs are %s and %s, expected bool", c.In[0], c.In[1])
		}
		return numeric(nil, f, nil)(c)
	}
}

func opBitShift(c *op.Call) []*tensor.Tensor {
	switch d := c.Str("direction", ""); d {
	case "LEFT":
		return numeric(nil, func(x, y int64) int64 { return x << uint64(y) }, nil)(c)
	case "RIGHT":
		return numeric(nil, func(x, y int64) int64 { return x >> uint64(y) },
			func(x, y uint64) uint64 { return x >> y })(c)
	default:
		tensor.Fail("direction is %q, expected LEFT or RIGHT", d)
		return nil
	}
}

// opWhere takes elements of the second input where the condition holds, and of the third elsewhere.
func opWhere(c *op.Call) []*tensor.Tensor {
	cond, a, b := c.In[0], c.In[1], c.In[2]
	if cond.DataType != onnx.Bool {
		tensor.Fail("the condition is %s, expected bool", cond)
	}
	c.SameType(1, 2)
	out := tensor.BroadcastShape(cond.Shape, a.Shape, b.Shape)
	k := tensor.Expand(cond.I, cond.Shape, out)
	a, b = tensor.ExpandTo(a, out), tensor.ExpandTo(b, out)
	return op.One(&tensor.Tensor{DataType: a.DataType, Shape: out, F: choose(k, a.F, b.F), I: choose(k, a.I, b.I),
		S: choose(k, a.S, b.S)})
}

func choose[T any](cond []int64, a, b []T) []T {
	if a == nil {
		return nil
	}
	r := make([]T, len(cond))
	for i, k := range cond {
		if k != 0 {
			r[i] = a[i]
		} else {
			r[i] = b[i]
		}
	}
	return r
}
