package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var reduceOps = map[string]opDef{
	"ReduceSum": arith(1, reduction(reducer{add: sumF, addInt: func(a, x int64) int64 { return a + x }})),
	"ReduceMean": arith(1,
		reduction(reducer{add: sumF, done: func(a float64, n int) float64 { return a / float64(n) }})),
	"ReduceSumSquare": arith(1, reduction(reducer{add: sumSquareF, addInt: func(a, x int64) int64 { return a + x*x }})),
	"ReduceL1": arith(1, reduction(reducer{add: func(a, x float64) float64 { return a + math.Abs(x) },
		addInt: func(a, x int64) int64 { return a + max(x, -x) }})),
	"ReduceL2": arith(1,
		reduction(reducer{add: sumSquareF, done: func(a float64, _ int) float64 { return math.Sqrt(a) }})),
	"ReduceProd": arith(1,
		reduction(reducer{start: 1, startInt: one64, add: func(a, x float64) float64 { return a * x },
			addInt: func(a, x int64) int64 { return a * x }})),
	"ReduceLogSum": arith(1,
		reduction(reducer{add: sumF, done: func(a float64, _ int) float64 { return math.Log(a) }})),
	"ReduceMax": arith(1, reduction(reducer{start: math.Inf(-1), add: maxFloat, startInt: minOf,
		addInt: func(a, x int64) int64 { return max(a, x) }})),
	"ReduceMin": arith(1, reduction(reducer{start: math.Inf(1), add: minFloat, startInt: maxOf,
		addInt: func(a, x int64) int64 { return min(a, x) }})),
	"ReduceLogSumExp": arith(1, opReduceLogSumExp),
	"ArgMax":          exact(1, opArg(func(c int) bool { return c == 1 })),
	"ArgMin":          exact(1, opArg(func(c int) bool { return c == -1 })),
}

// reducer folds elements in order; addInt is nil where integers are folded as floats and cut off at the end.
type reducer struct {
	start    float64
	startInt func(onnx.DataType) int64
	add      func(acc, x float64) float64
	addInt   func(acc, x int64) int64
	done     func(acc float64, n int) float64
}

func sumF(a, x float64) float64       { return a + x }
func sumSquareF(a, x float64) float64 { return a + x*x }
func one64(onnx.DataType) int64       { return 1 }
func minOf(t onnx.DataType) int64     { lo, _ := intRange(t); return lo }
func maxOf(t onnx.DataType) int64     { _, hi := intRange(t); return hi }

// reduceAxes returns which dimensions are reduced, and the output's shape. Without axes all are, or none when
// noop_with_empty_axes; noop says so.
func (c *call) reduceAxes(x *Tensor) (drop []bool, shape []int, noop bool) {
	axes, ok := c.axes(1, x.Rank())
	if c.err != nil {
		return nil, nil, false
	}
	if !ok || len(axes) == 0 {
		if c.int("noop_with_empty_axes", 0) != 0 {
			return make([]bool, x.Rank()), x.Shape, true
		}
		axes = nil
		for i := range x.Rank() {
			axes = append(axes, i)
		}
	}
	keep := c.int("keepdims", 1) != 0
	drop = make([]bool, x.Rank())
	shape = []int{}
	for _, a := range axes {
		drop[a] = true
	}
	for i, d := range x.Shape {
		switch {
		case !drop[i]:
			shape = append(shape, d)
		case keep:
			shape = append(shape, 1)
		}
	}
	return drop, shape, false
}

// reduceStrides returns, for each dimension of the input, by how much the index into the output grows.
func reduceStrides(shape []int, drop []bool) []int {
	st := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if !drop[i] {
			st[i] = n
			n *= shape[i]
		}
	}
	return st
}

func reduction(r reducer) opFunc {
	return func(c *call) ([]*Tensor, error) {
		x := c.in[0]
		drop, shape, _ := c.reduceAxes(x)
		if c.err != nil {
			return nil, c.err
		}
		out := &Tensor{DataType: x.DataType, Shape: shape}
		st := reduceStrides(x.Shape, drop)
		count := 1
		for i, d := range x.Shape {
			if drop[i] {
				count *= d
			}
		}
		if isInt(x.DataType) && r.addInt != nil {
			start := int64(0)
			if r.startInt != nil {
				start = r.startInt(x.DataType)
			}
			out.I = fold(x.I, x.Shape, st, size(shape), start, r.addInt)
			return one(out)
		}
		if x.S != nil {
			return nil, fmt.Errorf("no %s of strings", c.n.OpType)
		}
		f := fold(x.toFloats(), x.Shape, st, size(shape), r.start, r.add)
		if r.done != nil {
			for i := range f {
				f[i] = r.done(f[i], count)
			}
		}
		if x.IsFloat() {
			out.F = f
		} else {
			out.I = mapSlice(f, truncate)
		}
		return one(out)
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

// opReduceLogSumExp takes the maximum out first, so that no exponential overflows.
func opReduceLogSumExp(c *call) ([]*Tensor, error) {
	x := c.in[0]
	drop, shape, _ := c.reduceAxes(x)
	if c.err != nil {
		return nil, c.err
	}
	st := reduceStrides(x.Shape, drop)
	v := x.toFloats()
	m := fold(v, x.Shape, st, size(shape), math.Inf(-1), maxFloat)
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
		if !math.IsInf(top, 0) {
			sum[i] = top + math.Log(sum[i])
		} else {
			sum[i] = top
		}
	}
	if x.IsFloat() {
		return one(NewFloats(x.DataType, shape, sum))
	}
	return one(NewInts(x.DataType, shape, mapSlice(sum, truncate)))
}

// opArg finds the index of the greatest (smallest) element along an axis; better takes the comparison with the best.
func opArg(better func(int) bool) opFunc {
	return func(c *call) ([]*Tensor, error) {
		x := c.in[0]
		axis := c.axis(c.int("axis", 0), x.Rank())
		last := c.int("select_last_index", 0) != 0
		if c.err != nil {
			return nil, c.err
		}
		n, inner := x.Shape[axis], size(x.Shape[axis+1:])
		if n == 0 {
			return nil, fmt.Errorf("dimension %d is empty", axis)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = 1
		r := c.newInts(onnx.Int64, shape)
		v := x.toFloats()
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
			r = r.withShape(slices.Delete(shape, axis, axis+1))
		}
		return one(r)
	}
}
