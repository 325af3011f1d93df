package shapes

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var shapeOps = map[string]op.Def{
	"Identity": op.Anything(1, func(c *op.Call) []*tensor.Tensor { return op.One(c.In[0]) }),
	"Reshape":  op.Plain(1, opReshape),
	"Shape":    op.Plain(1, opShape),
	"Size": op.Plain(1, func(c *op.Call) []*tensor.Tensor {
		return op.One(tensor.NewInts(onnx.Int64, []int{}, []int64{int64(c.In[0].Len())}))
	}),
	"Squeeze":   op.Plain(1, opSqueeze),
	"Unsqueeze": op.Plain(1, opUnsqueeze),
	"Flatten":   op.Plain(1, opFlatten),
	"Transpose": op.Plain(1, opTranspose),
	"Expand":    op.Plain(2, opExpand),
	"Tile":      op.Plain(2, opTile),
}

// opReshape takes the shape as input (opset 5) or attribute (opset 1); 0 copies a dimension unless allowzero is set.
func opReshape(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	want, ok := c.List(1, "shape")
	if !ok {
		tensor.Fail("no shape")
	}
	allowZero := c.Int("allowzero", 0) != 0
	shape := tensor.ToInts(want)
	known, infer := 1, -1
	for i, d := range shape {
		switch {
		case d == -1 && infer >= 0:
			tensor.Fail("the shape %v has two dimensions of -1", want)
		case d == -1:
			infer = i
			continue
		case d == 0 && !allowZero:
			if i >= x.Rank() {
				tensor.Fail("dimension %d of the shape %v is copied from the input, which has fewer", i, want)
			}
			shape[i] = x.Shape[i]
		}
		known *= shape[i]
	}
	if infer >= 0 {
		if known == 0 || x.Len()%known != 0 {
			tensor.Fail("cannot reshape %v to %v", x.Shape, want)
		}
		shape[infer] = x.Len() / known
	}
	tensor.Check(tensor.BoundShape(shape, tensor.MaxLazy)) // no element is made
	if tensor.Size(shape) != x.Len() {
		tensor.Fail("cannot reshape %v to %v", x.Shape, want)
	}
	return op.One(x.WithShape(shape))
}

func opShape(c *op.Call) []*tensor.Tensor {
	shape := c.In[0].Shape
	rank := int64(len(shape))
	from, to := ShapeRange(c.Int("start", 0), c.Int("end", rank), rank)
	return op.One(tensor.Vector(tensor.ToInt64s(shape[from:to])))
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

func opSqueeze(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	axes, ok := c.Axes(1, x.Rank())
	shape := []int{}
	for i, d := range x.Shape {
		switch drop := slices.Contains(axes, i); {
		case drop && d != 1:
			tensor.Fail("dimension %d is %d, only 1 can be squeezed", i, d)
		case drop || !ok && d == 1:
		default:
			shape = append(shape, d)
		}
	}
	return op.One(x.WithShape(shape))
}

func opUnsqueeze(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	v, ok := c.List(1, "axes")
	if !ok {
		tensor.Fail("no axes")
	}
	shape := make([]int, x.Rank()+len(v))
	axes, _ := c.Axes(1, len(shape))
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
	return op.One(x.WithShape(shape))
}

func opFlatten(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	axis := c.Int("axis", 1)
	if axis != int64(x.Rank()) {
		axis = int64(c.Axis(axis, max(x.Rank(), 1)))
	}
	return op.One(x.WithShape([]int{tensor.Size(x.Shape[:axis]), tensor.Size(x.Shape[axis:])}))
}

func opTranspose(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	p, ok := c.Ints("perm")
	perm := tensor.ToInts(p)
	if !ok {
		perm = tensor.UpTo(x.Rank())
		slices.Reverse(perm)
	}
	if len(perm) != x.Rank() {
		tensor.Fail("perm %v does not fit the shape %v", perm, x.Shape)
	}
	if !slices.Equal(slices.Sorted(slices.Values(perm)), tensor.UpTo(len(perm))) {
		tensor.Fail("perm %v is not a permutation", perm)
	}
	return op.One(tensor.Transpose(x, perm))
}

// opExpand broadcasts both ways: a dimension of 1 in the given shape keeps the input's.
func opExpand(c *op.Call) []*tensor.Tensor {
	want, _ := c.Integers(1)
	out := tensor.BroadcastShape(c.In[0].Shape, tensor.ToInts(want))
	return op.One(tensor.ExpandTo(c.In[0], out))
}

func opTile(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	rep, _ := c.Integers(1)
	if c.Opset() < 6 && len(c.In) == 3 { // tiles and axis, one number each
		r := slices.Repeat([]int64{1}, x.Rank())
		r[c.Axis(c.Integer(2, 0), x.Rank())] = c.Integer(1, 1)
		rep = r
	}
	if len(rep) != x.Rank() {
		tensor.Fail("repeats %v do not fit the shape %v", rep, x.Shape)
	}
	// Each dimension becomes (repeat, dim), the first with stride 0.
	src := onnx.RowMajor(x.Shape)
	out, wide, st := make([]int, x.Rank()), []int{}, []int{}
	for i, r := range tensor.ToInts(rep) {
		if r < 0 {
			tensor.Fail("repeats %v: negative", rep)
		}
		out[i] = x.Shape[i] * r
		wide, st = append(wide, r, x.Shape[i]), append(st, 0, src[i])
	}
	tensor.Check(tensor.CheckShape(wide))
	return op.One(tensor.GatherStrided(x, wide, st, 0).WithShape(out))
}
