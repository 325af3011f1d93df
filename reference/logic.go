package reference

import (
	"cmp"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var logicOps = map[string]opDef{
	"Equal":          plain(2, comparison(func(c int) bool { return c == 0 })),
	"Less":           plain(2, comparison(func(c int) bool { return c == -1 })),
	"LessOrEqual":    plain(2, comparison(func(c int) bool { return c == -1 || c == 0 })),
	"Greater":        plain(2, comparison(func(c int) bool { return c == 1 })),
	"GreaterOrEqual": plain(2, comparison(func(c int) bool { return c == 1 || c == 0 })),

	"And": exact(2, boolean(func(x, y int64) int64 { return x & y })),
	"Or":  exact(2, boolean(func(x, y int64) int64 { return x | y })),
	"Xor": exact(2, boolean(func(x, y int64) int64 { return x ^ y })),

	"BitwiseAnd": arith(2, numeric(nil, func(x, y int64) int64 { return x & y }, nil)),
	"BitwiseOr":  arith(2, numeric(nil, func(x, y int64) int64 { return x | y }, nil)),
	"BitwiseXor": arith(2, numeric(nil, func(x, y int64) int64 { return x ^ y }, nil)),
	"BitShift":   arith(2, opBitShift),
	"Where":      plain(3, opWhere),
}

// unordered is the result of compareFloat if one side is NaN: no comparison holds.
const unordered = 2

func compareFloat(x, y float64) int {
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
func comparison(holds func(int) bool) opFunc {
	return func(c *call) []*Tensor {
		c.sameType(0, 1)
		a, b := c.in[0], c.legacyBroadcast()
		out := broadcastShape(a.Shape, b.Shape)
		r := &Tensor{DataType: onnx.Bool, Shape: out}
		test := func(c int) int64 { return boolInt(holds(c)) }
		switch {
		case a.IsFloat():
			r.I = zipWith(a.F, a.Shape, b.F, b.Shape, out, func(x, y float64) int64 { return test(compareFloat(x, y)) })
		case a.DataType == onnx.String:
			r.I = zipWith(a.S, a.Shape, b.S, b.Shape, out, func(x, y string) int64 { return test(cmp.Compare(x, y)) })
		case a.DataType == onnx.Uint64:
			r.I = zipWith(a.I, a.Shape, b.I, b.Shape, out, func(x, y int64) int64 {
				return test(cmp.Compare(uint64(x), uint64(y)))
			})
		default:
			r.I = zipWith(a.I, a.Shape, b.I, b.Shape, out, func(x, y int64) int64 { return test(cmp.Compare(x, y)) })
		}
		return one(r)
	}
}

func boolean(f func(x, y int64) int64) opFunc {
	return func(c *call) []*Tensor {
		if c.in[0].DataType != onnx.Bool || c.in[1].DataType != onnx.Bool {
			fail("inputs are %s and %s, expected bool", c.in[0], c.in[1])
		}
		return numeric(nil, f, nil)(c)
	}
}

func opBitShift(c *call) []*Tensor {
	switch d := c.str("direction", ""); d {
	case "LEFT":
		return numeric(nil, func(x, y int64) int64 { return x << uint64(y) }, nil)(c)
	case "RIGHT":
		return numeric(nil, func(x, y int64) int64 { return x >> uint64(y) },
			func(x, y uint64) uint64 { return x >> y })(c)
	default:
		fail("direction is %q, expected LEFT or RIGHT", d)
		return nil
	}
}

// opWhere takes elements of the second input where the condition holds, and of the third elsewhere.
func opWhere(c *call) []*Tensor {
	cond, a, b := c.in[0], c.in[1], c.in[2]
	if cond.DataType != onnx.Bool {
		fail("the condition is %s, expected bool", cond)
	}
	c.sameType(1, 2)
	out := broadcastShape(cond.Shape, a.Shape, b.Shape)
	k := expand(cond.I, cond.Shape, out)
	a, b = a.expandTo(out), b.expandTo(out)
	return one(&Tensor{DataType: a.DataType, Shape: out, F: choose(k, a.F, b.F), I: choose(k, a.I, b.I),
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
