package norms

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var reduceOps = map[string]op.Def{
	"ReduceSum":       op.Arith(1, reduction(0, elementwise.Add, elementwise.Add, nil)),
	"ReduceMean":      op.Arith(1, reduction(0, elementwise.Add, nil, func(a, n float64) float64 { return a / n })),
	"ReduceSumSquare": op.Arith(1, reduction(0, addSquare, addSquare, nil)),
	"ReduceL1":        op.Arith(1, reduction(0, addMagnitude, addMagnitude, nil)),
	"ReduceL2":        op.Arith(1, reduction(0, addSquare, nil, func(a, _ float64) float64 { return math.Sqrt(a) })),
	"ReduceProd":      op.Arith(1, reduction(1, elementwise.Multiply, elementwise.Multiply, nil)),
	"ReduceLogSum": op.Arith(1, reduction(0, elementwise.Add, nil,
		func(a, _ float64) float64 { return math.Log(a) })),
	"ReduceMax":       op.Arith(1, reduction(math.Inf(-1), math.Max, elementwise.Greater, nil)),
	"ReduceMin":       op.Arith(1, reduction(math.Inf(1), math.Min, elementwise.Lesser, nil)),
	"ReduceLogSumExp": op.Arith(1, opReduceLogSumExp),

	"GlobalAveragePool": op.Arith(1, reduction(0, elementwise.Add, nil, func(a, n float64) float64 { return a / n })),
	"GlobalMaxPool":     op.Arith(1, reduction(math.Inf(-1), math.Max, nil, nil)),

	"ArgMax": op.Exact(1, opArg(func(c int) bool { return c == 1 })),
	"ArgMin": op.Exact(1, opArg(func(c int) bool { return c == -1 })),
}

func addSquare[T elementwise.Number](a, x T) T    { return a + x*x }
func addMagnitude[T elementwise.Number](a, x T) T { return a + max(x, -x) }

// reduced returns the stride of the output index for each dimension of the input, and the output's shape. Without axes
// all dimensions are reduced, or none with noop_with_empty_axes. A pool reduces those after the first two.
func reduced(c *op.Call, x *tensor.Tensor) (strides, shape []int) {
	axes, _ := c.Axes(1, x.Rank())
	switch {
	case strings.HasPrefix(c.Node.OpType, "Global"):
		axes = tensor.UpTo(x.Rank())[min(2, x.Rank()):]
	case len(axes) == 0 && c.Int("noop_with_empty_axes", 0) == 0:
		axes = tensor.UpTo(x.Rank())
	}
	keep := c.Int("keepdims", 1) != 0
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
	done func(acc, n float64) float64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		x := c.In[0]
		st, shape := reduced(c, x)
		if tensor.IsIntType(x.DataType) && ints != nil {
			lo, hi := elements.Range(x.DataType)
			return op.One(tensor.NewInts(x.DataType, shape,
				fold(x.I, x.Shape, st, tensor.Size(shape), min(max(tensor.Truncate(start), lo), hi), ints)))
		}
		if x.S != nil {
			tensor.Fail("no %s of strings", c.Node.OpType)
		}
		f := fold(x.Floats(), x.Shape, st, tensor.Size(shape), start, c.Adder(x.DataType, floats))
		if done != nil {
			count := float64(x.Len() / max(len(f), 1))
			f = tensor.MapSlice(f, func(a float64) float64 { return done(a, count) })
		}
		return op.One(tensor.OfFloats(x.DataType, shape, f))
	}
}

func fold[T any](x []T, shape, st []int, n int, start T, add func(a, x T) T) []T {
	r := slices.Repeat([]T{start}, n)
	if len(x) == 0 {
		return r
	}
	tensor.Walk2(shape, st, st, func(o, i, _, n, si, _ int) {
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
func opReduceLogSumExp(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	st, shape := reduced(c, x)
	v := x.Floats()
	m := fold(v, x.Shape, st, tensor.Size(shape), math.Inf(-1), math.Max)
	sum := make([]float64, len(m))
	if len(v) > 0 {
		tensor.Walk2(x.Shape, st, st, func(o, i, _, n, si, _ int) {
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
	return op.One(tensor.OfFloats(x.DataType, shape, sum))
}

// opArg finds the index of the greatest (smallest) element along an axis. better takes the comparison with the best.
func opArg(better func(int) bool) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		x := c.In[0]
		axis := c.Axis(c.Int("axis", 0), x.Rank())
		last := c.Int("select_last_index", 0) != 0
		n, inner := x.Shape[axis], tensor.Size(x.Shape[axis+1:])
		if n == 0 {
			tensor.Fail("dimension %d is empty", axis)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = 1
		r := tensor.ZeroInts(onnx.Int64, shape)
		v := x.Floats()
		for o := range r.I {
			at := func(k int) float64 { return v[o/inner*n*inner+k*inner+o%inner] }
			best := 0
			for k := 1; k < n; k++ {
				d := elementwise.CompareFloat(at(k), at(best))
				if better(d) || last && d == 0 {
					best = k
				}
			}
			r.I[o] = int64(best)
		}
		if c.Int("keepdims", 1) == 0 {
			r = r.WithShape(slices.Delete(shape, axis, axis+1))
		}
		return op.One(r)
	}
}
