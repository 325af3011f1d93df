package reference

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

var reduceOps = map[string]opDef{
	"ReduceSum":       arith(1, reduction(0, add, add, nil)),
	"ReduceMean":      arith(1, reduction(0, add, nil, func(a, n float64) float64 { return a / n })),
	"ReduceSumSquare": arith(1, reduction(0, addSquare, addSquare, nil)),
	"ReduceL1":        arith(1, reduction(0, addMagnitude, addMagnitude, nil)),
	"ReduceL2":        arith(1, reduction(0, addSquare, nil, func(a, _ float64) float64 { return math.Sqrt(a) })),
	"ReduceProd":      arith(1, reduction(1, multiply, multiply, nil)),
	"ReduceLogSum":    arith(1, reduction(0, add, nil, func(a, _ float64) float64 { return math.Log(a) })),
	"ReduceMax":       arith(1, reduction(math.Inf(-1), math.Max, greater, nil)),
	"ReduceMin":       arith(1, reduction(math.Inf(1), math.Min, lesser, nil)),
	"ReduceLogSumExp": arith(1, opReduceLogSumExp),

	"GlobalAveragePool": arith(1, reduction(0, add, nil, func(a, n float64) float64 { return a / n })),
	"GlobalMaxPool":     arith(1, reduction(math.Inf(-1), math.Max, nil, nil)),

	"ArgMax": exact(1, opArg(func(c int) bool { return c == 1 })),
	"ArgMin": exact(1, opArg(func(c int) bool { return c == -1 })),
}

func addSquare[T number](a, x T) T    { return a + x*x }
func addMagnitude[T number](a, x T) T { return a + max(x, -x) }

// reduced returns the stride of the output index for each dimension of the input, and the output's shape. Without axes
// all dimensions are reduced, or none with noop_with_empty_axes. A pool reduces those after the first two.
func (c *call) reduced(x *Tensor) (strides, shape []int) {
	axes, _ := c.axes(1, x.Rank())
	switch {
	case strings.HasPrefix(c.n.OpType, "Global"):
		axes = upTo(x.Rank())[min(2, x.Rank()):]
	case len(axes) == 0 && c.int("noop_with_empty_axes", 0) == 0:
		axes = upTo(x.Rank())
	}
	keep := c.int("keepdims", 1) != 0
	shape = []int{}
	for i, d := range x.Shape {
		switch {
		case !slices.Contains(axes, i):
			shape = append(shape, d)
		case keep:
			shape = append(shape, 1)
		}
	}
	return reduceStrides(x.Shape, axes), shape
}

// reduceStrides returns the stride of the output index for each dimension of the input.
func reduceStrides(shape, axes []int) []int {
	st := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if !slices.Contains(axes, i) {
			st[i] = n
			n *= shape[i]
		}
	}
	return st
}

// reduction folds elements in order from a start, or from the nearest integer of the type. If ints is nil, integers are
// folded as floats and truncated at the end. done, if any, also gets the number of elements.
func reduction(start float64, floats func(acc, x float64) float64, ints func(acc, x int64) int64,
	done func(acc, n float64) float64) opFunc {
	return func(c *call) []*Tensor {
		x := c.in[0]
		st, shape := c.reduced(x)
		if isInt(x.DataType) && ints != nil {
			lo, hi := elements.Range(x.DataType)
			return one(NewInts(x.DataType, shape,
				fold(x.I, x.Shape, st, size(shape), min(max(truncate(start), lo), hi), ints)))
		}
		if x.S != nil {
			fail("no %s of strings", c.n.OpType)
		}
		f := fold(x.Floats(), x.Shape, st, size(shape), start, c.adder(x.DataType, floats))
		if done != nil {
			count := float64(x.Len() / max(len(f), 1))
			f = mapSlice(f, func(a float64) float64 { return done(a, count) })
		}
		return one(ofFloats(x.DataType, shape, f))
	}
}

func fold[T any](x []T, shape, st []int, n int, start T, add func(a, x T) T) []T {
	r := slices.Repeat([]T{start}, n)
	if len(x) == 0 {
		return r
	}
	walk2(shape, st, st, func(o, i, _, n, si, _ int) {
		if si == 0 {
			acc := r[i]
			for _, v := range x[o : o+n] {
				acc = add(acc, v)
			}
			r[i] = acc
			return
		}
		for k := range n {
			r[i+k*si] = add(r[i+k*si], x[o+k])
		}
	})
	return r
}

// opReduceLogSumExp first subtracts the maximum, so that no exponential overflows.
func opReduceLogSumExp(c *call) []*Tensor {
	x := c.in[0]
	st, shape := c.reduced(x)
	v := x.Floats()
	m := fold(v, x.Shape, st, size(shape), math.Inf(-1), math.Max)
	sum := make([]float64, len(m))
	if len(v) > 0 {
		walk2(x.Shape, st, st, func(o, i, _, n, si, _ int) {
			for k := range n {
				if top := m[i+k*si]; !math.IsInf(top, 0) {
					sum[i+k*si] += math.Exp(v[o+k] - top)
				}
			}
		})
	}
	for i, top := range m {
		if sum[i] = top + math.Log(sum[i]); math.IsInf(top, 0) {
			sum[i] = top
		}
	}
	return one(ofFloats(x.DataType, shape, sum))
}

// opArg finds the index of the greatest (smallest) element along an axis. better takes the comparison with the best.
func opArg(better func(int) bool) opFunc {
	return func(c *call) []*Tensor {
		x := c.in[0]
		axis := c.axis(c.int("axis", 0), x.Rank())
		last := c.int("select_last_index", 0) != 0
		n, inner := x.Shape[axis], size(x.Shape[axis+1:])
		if n == 0 {
			fail("dimension %d is empty", axis)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = 1
		r := newInts(onnx.Int64, shape)
		v := x.Floats()
		for o := range r.I {
			at := func(k int) float64 { return v[o/inner*n*inner+k*inner+o%inner] }
			best := 0
			for k := 1; k < n; k++ {
				d := compareFloat(at(k), at(best))
				if better(d) || last && d == 0 {
					best = k
				}
			}
			r.I[o] = int64(best)
		}
		if c.int("keepdims", 1) == 0 {
			r = r.WithShape(slices.Delete(shape, axis, axis+1))
		}
		return one(r)
	}
}
