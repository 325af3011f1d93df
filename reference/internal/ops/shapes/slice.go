package shapes

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var sliceOps = map[string]op.Def{
	"Slice":  op.Plain(1, opSlice),
	"Concat": op.Plain(1, opConcat),
	"Split":  op.Plain(1, opSplit),
	"Pad":    op.Plain(1, opPad),
	"Trilu":  op.Exact(1, opTrilu),
}

// opSlice takes starts, ends and axes as attributes (opset 1) or inputs (opset 10), steps as an input.
func opSlice(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	starts, _ := c.List(1, "starts")
	ends, _ := c.List(2, "ends")
	axes, hasAxes := c.List(3, "axes")
	steps, hasSteps := c.Integers(4)
	if len(starts) != len(ends) || hasAxes && len(axes) != len(starts) || hasSteps && len(steps) != len(starts) {
		tensor.Fail("starts %v, ends %v, axes %v and steps %v differ in length", starts, ends, axes, steps)
	}
	if !hasAxes && len(starts) > x.Rank() {
		tensor.Fail("starts %v do not fit the shape %v", starts, x.Shape)
	}
	shape, st, offset := slices.Clone(x.Shape), onnx.RowMajor(x.Shape), 0
	src, lazy := slices.Clone(st), x
	for i := range starts {
		axis := i
		if hasAxes {
			axis = c.Axis(axes[i], x.Rank())
		}
		step := int64(1)
		if hasSteps {
			step = steps[i]
		}
		if step == 0 {
			tensor.Fail("step 0 on axis %d", axis)
		}
		from, n := sliceRange(starts[i], ends[i], step, int64(x.Shape[axis]))
		shape[axis] = n
		by := int(min(max(step, math.MinInt32), math.MaxInt32))
		if x.IsLazy() {
			lazy = tensor.CutLazy(lazy, axis, int(from), n, by)
			continue
		}
		offset += int(from) * src[axis]
		st[axis] = src[axis] * by
	}
	if x.IsLazy() {
		return op.One(lazy)
	}
	if slices.Equal(shape, x.Shape) && offset == 0 && slices.Equal(st, src) {
		return op.One(x)
	}
	return op.One(tensor.GatherStrided(x, shape, st, offset))
}

// SliceLength returns the number of elements that Slice takes for start:end:step of a dimension of d elements.
func SliceLength(start, end, step, d int64) int64 {
	_, n := sliceRange(start, end, step, d)
	return int64(n)
}

// sliceRange returns the first index and the number of elements of start:end:step in a dimension of d elements.
func sliceRange(start, end, step, d int64) (from int64, n int) {
	clamp := func(v int64) int64 {
		if v < 0 {
			v += d
			if v < 0 { // below the range, or an overflow from the smallest int64
				v = -1
			}
		}
		if step > 0 {
			return min(max(v, 0), d)
		}
		return min(v, d-1)
	}
	from, to := clamp(start), clamp(end)
	if step < 0 {
		from = max(from, 0)
		if from > to && d > 0 {
			n = int((from-to-1)/max(-step, 1)) + 1
		}
		if step == math.MinInt64 {
			n = min(n, 1)
		}
		return from, n
	}
	if to > from {
		n = int((to-from-1)/step) + 1
	}
	return from, n
}

func opConcat(c *op.Call) []*tensor.Tensor {
	for i := range c.In {
		if c.In[i] == nil {
			tensor.Fail("input %d is missing", i)
		}
		c.SameType(0, i)
	}
	axis := c.Int("axis", tensor.Pick[int64](c.Opset() < 4, 1, 0))
	return op.One(tensor.Concat(c.In, c.Axis(axis, c.In[0].Rank())))
}

// opSplit takes the sizes as attribute (opset 2) or input (1, 13). Without them num_outputs (18) or the number of the
// node's outputs is the number of parts, of which the last may be smaller.
func opSplit(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	sizes, ok := c.List(1, "split")
	parts := int(c.Int("num_outputs", int64(len(c.Node.Outputs))))
	d := x.Shape[axis]
	if !ok {
		if parts < 1 || parts > tensor.MaxParts {
			tensor.Fail("num_outputs is %d", parts)
		}
		each := (d + parts - 1) / parts
		for i := range parts {
			sizes = append(sizes, int64(min(each, max(d-i*each, 0))))
		}
	}
	return tensor.Split(x, axis, sizes)
}

// opPad takes pads and value as attributes (opset 1, 2) or inputs (11), and their axes (18).
func opPad(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	p, ok := c.List(1, "pads")
	if !ok {
		p, _ = c.Ints("paddings")
	}
	axes := tensor.UpTo(x.Rank())
	if v, ok := c.Integers(3); ok {
		axes = tensor.MapSlice(v, func(a int64) int { return c.Axis(a, x.Rank()) })
	}
	mode := c.Str("mode", "constant")
	if len(p) != 2*len(axes) {
		tensor.Fail("pads %v do not fit %d axes", p, len(axes))
	}
	shape, before := slices.Clone(x.Shape), make([]int, x.Rank())
	pads := tensor.ToInts(p)
	for i, a := range axes {
		for _, n := range []int{pads[i], pads[i+len(axes)]} {
			if n < -tensor.MaxElements || n > tensor.MaxElements {
				tensor.Fail("pads %v have more than %d elements", p, tensor.MaxElements)
			}
		}
		before[a] = pads[i]
		shape[a] += pads[i] + pads[i+len(axes)]
	}
	tensor.Check(tensor.CheckShape(shape))
	var float float64
	var integer int64
	if x.IsFloat() {
		float = c.RoundOne(x.DataType, c.Number(2, c.Float("value", 0)))
	} else if tensor.IsIntType(x.DataType) {
		integer = c.Integer(2, tensor.Truncate(c.Float("value", 0)))
	}
	return op.One(takeOr(x, shape, padIndex(mode, x.Shape, shape, before), float, integer))
}

// takeOr is take with default numbers for negative indices.
func takeOr(t *tensor.Tensor, shape, index []int, float float64, integer int64) *tensor.Tensor {
	if t.Len() == 0 { // it may have no list of its kind
		empty := *t
		switch {
		case tensor.IsFloatType(t.DataType):
			empty.F = []float64{}
		case t.DataType == onnx.String:
			empty.S = []string{}
		default:
			empty.I = []int64{}
		}
		t = &empty
	}
	return &tensor.Tensor{DataType: t.DataType, Shape: shape, F: pickOr(t.F, index, float),
		I: pickOr(t.I, index, integer), S: pickOr(t.S, index, "")}
}

func pickOr[T any](x []T, index []int, other T) []T {
	if x == nil {
		return nil
	}
	r := make([]T, len(index))
	for o, i := range index {
		if r[o] = other; i >= 0 {
			r[o] = x[i]
		}
	}
	return r
}

// padIndex returns, for each element of the padded shape, the element of the input it copies, or -1.
func padIndex(mode string, in, out, before []int) []int {
	index := []int{0}
	for d := range out {
		src := make([]int, out[d])
		for o := range src {
			i, n := o-before[d], in[d]
			switch mode {
			case "constant":
				if i < 0 || i >= n {
					i = -1
				}
			case "edge":
				i = min(max(i, 0), n-1)
			case "wrap":
				if n > 0 {
					i = (i%n + n) % n
				}
			case "reflect":
				if n > 1 {
					i = (i%(2*n-2) + 2*n - 2) % (2*n - 2)
					i = min(i, 2*n-2-i)
				} else {
					i = 0
				}
			default:
				tensor.Fail("unknown mode %q", mode)
			}
			if i >= n {
				tensor.Fail("mode %s cannot pad the empty dimension %d of %v", mode, d, in)
			}
			src[o] = i
		}
		next := make([]int, 0, len(index)*len(src))
		for _, base := range index {
			for _, i := range src {
				if base < 0 || i < 0 {
					next = append(next, -1)
				} else {
					next = append(next, base*in[d]+i)
				}
			}
		}
		index = next
	}
	return index
}

// opTrilu keeps the triangle above (upper) or below the k-th diagonal of each matrix.
func opTrilu(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	k, upper := c.Integer(1, 0), c.Int("upper", 1) != 0
	if x.Rank() < 2 {
		tensor.Fail("the input has rank %d, expected matrices", x.Rank())
	}
	rows, cols := x.Shape[x.Rank()-2], x.Shape[x.Rank()-1]
	index := tensor.UpTo(x.Len())
	for i := range index {
		row, col := int64(i/cols%rows), int64(i%cols)
		if upper && col-row < k || !upper && col-row > k {
			index[i] = -1
		}
	}
	return op.One(takeOr(x, x.Shape, index, 0, 0))
}
