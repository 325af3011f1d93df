package shapes

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var gatherOps = map[string]op.Def{
	"Gather":          op.Plain(2, opGather),
	"GatherElements":  op.Plain(2, opGatherElements),
	"GatherND":        op.Plain(2, opGatherND),
	"Compress":        op.Plain(2, opCompress),
	"NonZero":         op.Exact(1, opNonZero),
	"ReverseSequence": op.Plain(2, opReverseSequence),
}

// opGather replaces dimension axis by the dimensions of the indices.
func opGather(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	idx, _ := c.Integers(1)
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	shape := slices.Concat(x.Shape[:axis], c.In[1].Shape, x.Shape[axis+1:])
	rows := tensor.MapSlice(idx, func(k int64) int { return c.Index(k, x.Shape[axis]) })
	if x.IsLazy() {
		tensor.Check(tensor.BoundShape(shape, tensor.MaxLazy))
		if y, ok := tensor.GatherLazy(x, axis, c.In[1].Shape, rows); ok {
			return op.One(y)
		}
		x = tensor.Try(x.Dense())
	}
	tensor.Check(tensor.CheckShape(shape))
	return op.One(tensor.TakeRows(x, axis, rows).WithShape(shape))
}

// elementOffsets returns the offsets in a tensor of shape xs that indices of shape is point to along the axis
// (GatherElements, ScatterElements).
func elementOffsets(c *op.Call, idx []int64, is, xs []int, axis int) []int {
	fits := len(is) == len(xs)
	for i := range is {
		fits = fits && (i == axis || is[i] <= xs[i])
	}
	if !fits {
		tensor.Fail("indices of %v do not fit a shape of %v", is, xs)
	}
	st := onnx.RowMajor(xs)
	off := make([]int, len(idx))
	if len(idx) == 0 {
		return off
	}
	base := slices.Clone(st)
	base[axis] = 0
	tensor.Walk2(is, base, base, func(o, i, _, n, si, _ int) {
		for k := range n {
			off[o+k] = i + k*si + c.Index(idx[o+k], xs[axis])*st[axis]
		}
	})
	return off
}

func opGatherElements(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	idx, _ := c.Integers(1)
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	return op.One(tensor.Take(x, c.In[1].Shape, elementOffsets(c, idx, c.In[1].Shape, x.Shape, axis)))
}

// tupleBlocks returns the block numbers that index tuples (the last dimension of the indices) point to, within each
// batch. inner is the size of a block.
func tupleBlocks(c *op.Call, xs []int, indices *tensor.Tensor, batchDims int) (blocks []int, inner int) {
	is := indices.Shape
	if len(is) == 0 || batchDims < 0 || batchDims >= len(is) || batchDims+is[len(is)-1] > len(xs) ||
		!slices.Equal(is[:batchDims], xs[:batchDims]) {
		tensor.Fail("indices of %v with %d batch dimensions do not fit a shape of %v", is, batchDims, xs)
	}
	k := is[len(is)-1]
	dims := xs[batchDims : batchDims+k]
	per := tensor.Size(is[batchDims : len(is)-1])
	blocks = make([]int, tensor.Size(is[:len(is)-1]))
	for t := range blocks {
		b := t / per
		for j, d := range dims {
			b = b*d + c.Index(indices.I[t*k+j], d)
		}
		blocks[t] = b
	}
	return blocks, tensor.Size(xs[batchDims+k:])
}

func opGatherND(c *op.Call) []*tensor.Tensor {
	x, idx := c.In[0], c.In[1]
	c.Integers(1)
	batch := int(c.Int("batch_dims", 0))
	blocks, inner := tupleBlocks(c, x.Shape, idx, batch)
	k := idx.Shape[idx.Rank()-1]
	if x.IsLazy() {
		if y, ok := tensor.TuplesLazy(x, k, idx.Shape[:idx.Rank()-1], blocks); ok && batch == 0 {
			return op.One(y)
		}
		x = tensor.Try(x.Dense())
	}
	shape := slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[batch+k:])
	tensor.Check(tensor.CheckShape(shape))
	return op.One(tensor.TakeBlocks(x, shape, blocks, inner))
}

// opCompress keeps the slices along the axis, or the elements, for which the condition holds.
func opCompress(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	cond, _ := c.Integers(1)
	if c.Attr("axis") == nil {
		x = x.WithShape([]int{x.Len()})
	}
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	if len(cond) > x.Shape[axis] {
		tensor.Fail("a condition of %d elements does not fit a dimension of %d", len(cond), x.Shape[axis])
	}
	var rows []int
	for i, k := range cond {
		if k != 0 {
			rows = append(rows, i)
		}
	}
	return op.One(tensor.TakeRows(x, axis, rows))
}

// opNonZero returns the indices of the nonzero elements, one column each.
func opNonZero(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	var at []int
	for i := range x.Len() {
		if tensor.FloatAt(x, i) != 0 {
			at = append(at, i)
		}
	}
	// A scalar counts as a vector of one element, but has no coordinate.
	r := tensor.ZeroInts(onnx.Int64, []int{x.Rank(), len(at)})
	st := onnx.RowMajor(x.Shape)
	for d := range x.Rank() {
		for k, i := range at {
			r.I[d*len(at)+k] = int64(i / st[d] % x.Shape[d])
		}
	}
	return op.One(r)
}

// opReverseSequence reverses the first sequence_lens[b] elements along time_axis, for each b along batch_axis.
func opReverseSequence(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	lens, _ := c.Integers(1)
	if x.Rank() < 2 {
		tensor.Fail("the input has rank %d, expected at least 2", x.Rank())
	}
	batch, time := c.Axis(c.Int("batch_axis", 1), x.Rank()), c.Axis(c.Int("time_axis", 0), x.Rank())
	if len(lens) != x.Shape[batch] {
		tensor.Fail("%d sequence_lens for a batch of %d", len(lens), x.Shape[batch])
	}
	st := onnx.RowMajor(x.Shape)
	off := make([]int, x.Len())
	for i := range off {
		b, t := i/st[batch]%x.Shape[batch], i/st[time]%x.Shape[time]
		off[i] = i
		if n := int(lens[b]); t < n && n <= x.Shape[time] {
			off[i] = i + (n-1-2*t)*st[time]
		}
	}
	return op.One(tensor.Take(x, x.Shape, off))
}
