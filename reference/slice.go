package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var sliceOps = map[string]opDef{
	"Slice":  plain(1, opSlice),
	"Concat": plain(1, opConcat),
	"Split":  plain(1, opSplit),
	"Pad":    plain(1, opPad),
	"Trilu":  exact(1, opTrilu),
}

// opSlice takes starts, ends and axes as attributes (opset 1) or inputs (opset 10), steps as an input.
func opSlice(c *call) []*Tensor {
	x := c.in[0]
	starts, _ := c.list(1, "starts")
	ends, _ := c.list(2, "ends")
	axes, hasAxes := c.list(3, "axes")
	steps, hasSteps := c.integers(4)
	if len(starts) != len(ends) || hasAxes && len(axes) != len(starts) || hasSteps && len(steps) != len(starts) {
		fail("starts %v, ends %v, axes %v and steps %v differ in length", starts, ends, axes, steps)
	}
	if !hasAxes && len(starts) > x.Rank() {
		fail("starts %v do not fit the shape %v", starts, x.Shape)
	}
	shape, st, offset := slices.Clone(x.Shape), onnx.RowMajor(x.Shape), 0
	src, lazy := slices.Clone(st), x.lazy
	for i := range starts {
		axis := i
		if hasAxes {
			axis = c.axis(axes[i], x.Rank())
		}
		step := int64(1)
		if hasSteps {
			step = steps[i]
		}
		if step == 0 {
			fail("step 0 on axis %d", axis)
		}
		from, n := sliceRange(starts[i], ends[i], step, int64(x.Shape[axis]))
		shape[axis] = n
		by := int(min(max(step, math.MinInt32), math.MaxInt32))
		if lazy != nil {
			lazy = lazy.cut(axis, int(from), n, by)
			continue
		}
		offset += int(from) * src[axis]
		st[axis] = src[axis] * by
	}
	if lazy != nil {
		return one(viewed(x.DataType, lazy))
	}
	if slices.Equal(shape, x.Shape) && offset == 0 && slices.Equal(st, src) {
		return one(x)
	}
	return one(x.gatherStrided(shape, st, offset))
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

func opConcat(c *call) []*Tensor {
	for i := range c.in {
		if c.in[i] == nil {
			fail("input %d is missing", i)
		}
		c.sameType(0, i)
	}
	axis := c.int("axis", pick[int64](c.opset() < 4, 1, 0))
	return one(concat(c.in, c.axis(axis, c.in[0].Rank())))
}

func concat(in []*Tensor, axis int) *Tensor {
	shape := slices.Clone(in[0].Shape)
	shape[axis] = 0
	for _, t := range in {
		same := t.Rank() == len(shape)
		for i := range shape {
			same = same && (i == axis || t.Shape[i] == shape[i])
		}
		if !same {
			fail("shapes %v and %v do not fit along axis %d", in[0].Shape, t.Shape, axis)
		}
		shape[axis] += t.Shape[axis]
	}
	if slices.ContainsFunc(in, func(t *Tensor) bool { return t.lazy != nil }) {
		check(boundShape(shape, maxLazy))
		return concatLazy(in, axis, shape)
	}
	check(checkShape(shape))
	outer := size(shape[:axis])
	return &Tensor{DataType: in[0].DataType, Shape: shape,
		F: join(in, outer, func(t *Tensor) []float64 { return t.F }),
		I: join(in, outer, func(t *Tensor) []int64 { return t.I }),
		S: join(in, outer, func(t *Tensor) []string { return t.S })}
}

func join[T any](in []*Tensor, outer int, elements func(*Tensor) []T) []T {
	n := -1
	for _, t := range in {
		if v := elements(t); v != nil {
			n = max(n, 0) + len(v)
		}
	}
	if n < 0 { // the elements are of another kind
		return nil
	}
	r := make([]T, 0, n)
	for o := range outer {
		for _, t := range in {
			v := elements(t)
			k := len(v) / outer
			r = append(r, v[o*k:(o+1)*k]...)
		}
	}
	return r
}

// opSplit takes the sizes as attribute (opset 2) or input (1, 13). Without them num_outputs (18) or the number of the
// node's outputs is the number of parts, of which the last may be smaller.
func opSplit(c *call) []*Tensor {
	x := c.in[0]
	axis := c.axis(c.int("axis", 0), x.Rank())
	sizes, ok := c.list(1, "split")
	parts := int(c.int("num_outputs", int64(len(c.n.Outputs))))
	d := x.Shape[axis]
	if !ok {
		if parts < 1 || parts > maxParts {
			fail("num_outputs is %d", parts)
		}
		each := (d + parts - 1) / parts
		for i := range parts {
			sizes = append(sizes, int64(min(each, max(d-i*each, 0))))
		}
	}
	return split(x, axis, sizes)
}

func split(x *Tensor, axis int, sizes []int64) []*Tensor {
	if len(sizes) > x.Len()+maxParts {
		fail("%v has too few elements for %d parts", x.Shape, len(sizes))
	}
	out := make([]*Tensor, 0, len(sizes))
	st, from := onnx.RowMajor(x.Shape), 0
	for _, n := range toInts(sizes) {
		if n < 0 || from+n > x.Shape[axis] {
			fail("sizes %v do not make up dimension %d of %v", sizes, axis, x.Shape)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = n
		if x.lazy != nil {
			out = append(out, viewed(x.DataType, x.lazy.cut(axis, from, n, 1)))
		} else {
			out = append(out, x.gatherStrided(shape, st, from*st[axis]))
		}
		from += n
	}
	if from != x.Shape[axis] {
		fail("sizes %v do not make up dimension %d of %v", sizes, axis, x.Shape)
	}
	return out
}

// withoutAxis drops an axis, which must have size 1.
func withoutAxis(list []*Tensor, axis int) []*Tensor {
	return mapSlice(list, func(t *Tensor) *Tensor {
		return t.WithShape(slices.Delete(slices.Clone(t.Shape), axis, axis+1))
	})
}

// opPad takes pads and value as attributes (opset 1, 2) or inputs (11), and their axes (18).
func opPad(c *call) []*Tensor {
	x := c.in[0]
	p, ok := c.list(1, "pads")
	if !ok {
		p, _ = c.ints("paddings")
	}
	axes := upTo(x.Rank())
	if v, ok := c.integers(3); ok {
		axes = mapSlice(v, func(a int64) int { return c.axis(a, x.Rank()) })
	}
	mode := c.str("mode", "constant")
	if len(p) != 2*len(axes) {
		fail("pads %v do not fit %d axes", p, len(axes))
	}
	shape, before := slices.Clone(x.Shape), make([]int, x.Rank())
	pads := toInts(p)
	for i, a := range axes {
		for _, n := range []int{pads[i], pads[i+len(axes)]} {
			if n < -maxElements || n > maxElements {
				fail("pads %v have more than %d elements", p, maxElements)
			}
		}
		before[a] = pads[i]
		shape[a] += pads[i] + pads[i+len(axes)]
	}
	check(checkShape(shape))
	var float float64
	var integer int64
	if x.IsFloat() {
		float = c.roundOne(x.DataType, c.number(2, c.float("value", 0)))
	} else if isInt(x.DataType) {
		integer = c.integer(2, truncate(c.float("value", 0)))
	}
	return one(x.takeOr(shape, padIndex(mode, x.Shape, shape, before), float, integer))
}

// takeOr is take with default numbers for negative indices.
func (t *Tensor) takeOr(shape, index []int, float float64, integer int64) *Tensor {
	if t.Len() == 0 { // it may have no list of its kind
		empty := *t
		switch {
		case isFloat(t.DataType):
			empty.F = []float64{}
		case t.DataType == onnx.String:
			empty.S = []string{}
		default:
			empty.I = []int64{}
		}
		t = &empty
	}
	return &Tensor{DataType: t.DataType, Shape: shape, F: pickOr(t.F, index, float), I: pickOr(t.I, index, integer),
		S: pickOr(t.S, index, "")}
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
				fail("unknown mode %q", mode)
			}
			if i >= n {
				fail("mode %s cannot pad the empty dimension %d of %v", mode, d, in)
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
func opTrilu(c *call) []*Tensor {
	x := c.in[0]
	k, upper := c.integer(1, 0), c.int("upper", 1) != 0
	if x.Rank() < 2 {
		fail("the input has rank %d, expected matrices", x.Rank())
	}
	rows, cols := x.Shape[x.Rank()-2], x.Shape[x.Rank()-1]
	index := upTo(x.Len())
	for i := range index {
		row, col := int64(i/cols%rows), int64(i%cols)
		if upper && col-row < k || !upper && col-row > k {
			index[i] = -1
		}
	}
	return one(x.takeOr(x.Shape, index, 0, 0))
}
