package reference

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var shapeOps = map[string]opDef{
	"Identity": anything(1, func(c *call) []*Tensor { return one(c.in[0]) }),
	"Reshape":  plain(1, opReshape),
	"Shape":    plain(1, opShape),
	"Size": plain(1, func(c *call) []*Tensor {
		return one(NewInts(onnx.Int64, []int{}, []int64{int64(c.in[0].Len())}))
	}),
	"Squeeze":   plain(1, opSqueeze),
	"Unsqueeze": plain(1, opUnsqueeze),
	"Flatten":   plain(1, opFlatten),
	"Transpose": plain(1, opTranspose),
	"Expand":    plain(2, opExpand),
	"Tile":      plain(2, opTile),
}

// opReshape takes the shape as input (opset 5) or attribute (opset 1); 0 copies a dimension unless allowzero is set.
func opReshape(c *call) []*Tensor {
	x := c.in[0]
	want, ok := c.list(1, "shape")
	if !ok {
		fail("no shape")
	}
	allowZero := c.int("allowzero", 0) != 0
	shape := toInts(want)
	known, infer := 1, -1
	for i, d := range shape {
		switch {
		case d == -1 && infer >= 0:
			fail("the shape %v has two dimensions of -1", want)
		case d == -1:
			infer = i
			continue
		case d == 0 && !allowZero:
			if i >= x.Rank() {
				fail("dimension %d of the shape %v is copied from the input, which has fewer", i, want)
			}
			shape[i] = x.Shape[i]
		}
		known *= shape[i]
	}
	if infer >= 0 {
		if known == 0 || x.Len()%known != 0 {
			fail("cannot reshape %v to %v", x.Shape, want)
		}
		shape[infer] = x.Len() / known
	}
	check(boundShape(shape, maxLazy)) // no element is made
	if size(shape) != x.Len() {
		fail("cannot reshape %v to %v", x.Shape, want)
	}
	return one(x.WithShape(shape))
}

func opShape(c *call) []*Tensor {
	shape := c.in[0].Shape
	rank := int64(len(shape))
	from, to := ShapeRange(c.int("start", 0), c.int("end", rank), rank)
	return one(vector(toInt64s(shape[from:to])))
}

// ShapeRange returns the range of dimensions that a Shape node with these attributes returns.
func ShapeRange(start, end, rank int64) (from, to int64) {
	bound := func(v int64) int64 {
		if v < 0 {
			v += rank
		}
		return min(max(v, 0), rank)
	}
	from = bound(start)
	return from, max(from, bound(end))
}

func opSqueeze(c *call) []*Tensor {
	x := c.in[0]
	axes, ok := c.axes(1, x.Rank())
	shape := []int{}
	for i, d := range x.Shape {
		switch drop := slices.Contains(axes, i); {
		case drop && d != 1:
			fail("dimension %d is %d, only 1 can be squeezed", i, d)
		case drop || !ok && d == 1:
		default:
			shape = append(shape, d)
		}
	}
	return one(x.WithShape(shape))
}

func opUnsqueeze(c *call) []*Tensor {
	x := c.in[0]
	v, ok := c.list(1, "axes")
	if !ok {
		fail("no axes")
	}
	shape := make([]int, x.Rank()+len(v))
	axes, _ := c.axes(1, len(shape))
	for _, a := range axes {
		shape[a] = 1
	}
	k := 0
	for i := range shape {
		if !slices.Contains(axes, i) {
			shape[i] = x.Shape[k]
			k++
		}
	}
	return one(x.WithShape(shape))
}

func opFlatten(c *call) []*Tensor {
	x := c.in[0]
	axis := c.int("axis", 1)
	if axis != int64(x.Rank()) {
		axis = int64(c.axis(axis, max(x.Rank(), 1)))
	}
	return one(x.WithShape([]int{size(x.Shape[:axis]), size(x.Shape[axis:])}))
}

func opTranspose(c *call) []*Tensor {
	x := c.in[0]
	p, ok := c.ints("perm")
	perm := toInts(p)
	if !ok {
		perm = upTo(x.Rank())
		slices.Reverse(perm)
	}
	if len(perm) != x.Rank() {
		fail("perm %v does not fit the shape %v", perm, x.Shape)
	}
	if !slices.Equal(slices.Sorted(slices.Values(perm)), upTo(len(perm))) {
		fail("perm %v is not a permutation", perm)
	}
	return one(x.transpose(perm))
}

// transpose makes dimension i of the result from dimension perm[i].
func (t *Tensor) transpose(perm []int) *Tensor {
	if t.lazy != nil {
		return viewed(t.DataType, t.lazy.transpose(perm))
	}
	st := onnx.RowMajor(t.Shape)
	shape, from := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		shape[i], from[i] = t.Shape[p], st[p]
	}
	return t.gatherStrided(shape, from, 0)
}

// gatherStrided reads a view of the elements: from an offset, with a stride for each dimension of the shape.
func (t *Tensor) gatherStrided(shape, st []int, offset int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: shape, F: readStrided(t.F, shape, st, offset),
		I: readStrided(t.I, shape, st, offset), S: readStrided(t.S, shape, st, offset)}
}

func readStrided[T any](src []T, shape, st []int, offset int) []T {
	if src == nil { // the elements are of another kind
		return nil
	}
	r := make([]T, size(shape))
	if len(r) == 0 {
		return r
	}
	walk2(shape, st, st, func(o, i, _, n, si, _ int) {
		i += offset
		if si == 1 {
			copy(r[o:o+n], src[i:i+n])
			return
		}
		for k := range n {
			r[o+k] = src[i+k*si]
		}
	})
	return r
}

// upTo lists the numbers from 0 to n-1.
func upTo(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// opExpand broadcasts both ways: a dimension of 1 in the given shape keeps the input's.
func opExpand(c *call) []*Tensor {
	want, _ := c.integers(1)
	out := broadcastShape(c.in[0].Shape, toInts(want))
	return one(c.in[0].expandTo(out))
}

func opTile(c *call) []*Tensor {
	x := c.in[0]
	rep, _ := c.integers(1)
	if c.opset() < 6 && len(c.in) == 3 { // tiles and axis, one number each
		r := slices.Repeat([]int64{1}, x.Rank())
		r[c.axis(c.integer(2, 0), x.Rank())] = c.integer(1, 1)
		rep = r
	}
	if len(rep) != x.Rank() {
		fail("repeats %v do not fit the shape %v", rep, x.Shape)
	}
	// Each dimension becomes (repeat, dim), the first with stride 0.
	src := onnx.RowMajor(x.Shape)
	out, wide, st := make([]int, x.Rank()), []int{}, []int{}
	for i, r := range toInts(rep) {
		if r < 0 {
			fail("repeats %v: negative", rep)
		}
		out[i] = x.Shape[i] * r
		wide, st = append(wide, r, x.Shape[i]), append(st, 0, src[i])
	}
	check(checkShape(wide))
	return one(x.gatherStrided(wide, st, 0).WithShape(out))
}
