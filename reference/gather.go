package reference

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var gatherOps = map[string]opDef{
	"Gather":          plain(2, opGather),
	"GatherElements":  plain(2, opGatherElements),
	"GatherND":        plain(2, opGatherND),
	"Compress":        plain(2, opCompress),
	"NonZero":         exact(1, opNonZero),
	"ReverseSequence": plain(2, opReverseSequence),
}

// take makes a tensor of the elements at the given offsets.
func (t *Tensor) take(shape []int, index []int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: shape, F: takeSlice(t.F, index), I: takeSlice(t.I, index),
		S: takeSlice(t.S, index)}
}

func takeSlice[T any](x []T, index []int) []T {
	if x == nil {
		return nil
	}
	r := make([]T, len(index))
	for o, i := range index {
		r[o] = x[i]
	}
	return r
}

// takeBlocks makes a tensor of the blocks of n elements with the given block numbers.
func (t *Tensor) takeBlocks(shape []int, blocks []int, n int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: shape, F: blockSlice(t.F, blocks, n), I: blockSlice(t.I, blocks, n),
		S: blockSlice(t.S, blocks, n)}
}

func blockSlice[T any](x []T, blocks []int, n int) []T {
	if x == nil {
		return nil
	}
	r := make([]T, 0, len(blocks)*n)
	for _, b := range blocks {
		r = append(r, x[b*n:(b+1)*n]...)
	}
	return r
}

// takeRows makes a tensor of these rows of a dimension.
func (t *Tensor) takeRows(axis int, rows []int) *Tensor {
	shape := slices.Clone(t.Shape)
	shape[axis] = len(rows)
	inner := size(t.Shape[axis+1:])
	return t.takeBlocks(shape, rowPlaces([]int{size(t.Shape[:axis]), t.Shape[axis]}, 1, rows), inner)
}

// index normalizes an index to [0, d), counting negative ones from the end.
func (c *call) index(i int64, d int) int {
	if i < 0 {
		i += int64(d)
	}
	if i < 0 || i >= int64(d) {
		fail("index %d is outside a dimension of %d", pick(i < 0, i-int64(d), i), d)
	}
	return int(i)
}

// opGather replaces dimension axis by the dimensions of the indices.
func opGather(c *call) []*Tensor {
	x := c.in[0]
	idx, _ := c.integers(1)
	axis := c.axis(c.int("axis", 0), x.Rank())
	shape := slices.Concat(x.Shape[:axis], c.in[1].Shape, x.Shape[axis+1:])
	rows := mapSlice(idx, func(k int64) int { return c.index(k, x.Shape[axis]) })
	if x.lazy != nil {
		check(boundShape(shape, maxLazy))
		if v, ok := x.lazy.gather(axis, c.in[1].Shape, rows); ok {
			return one(viewed(x.DataType, v))
		}
		x = try(x.Dense())
	}
	check(checkShape(shape))
	return one(x.takeRows(axis, rows).WithShape(shape))
}

// elementOffsets returns the offsets in a tensor of shape xs that indices of shape is point to along the axis
// (GatherElements, ScatterElements).
func (c *call) elementOffsets(idx []int64, is, xs []int, axis int) []int {
	fits := len(is) == len(xs)
	for i := range is {
		fits = fits && (i == axis || is[i] <= xs[i])
	}
	if !fits {
		fail("indices of %v do not fit a shape of %v", is, xs)
	}
	st := onnx.RowMajor(xs)
	off := make([]int, len(idx))
	if len(idx) == 0 {
		return off
	}
	base := slices.Clone(st)
	base[axis] = 0
	walk2(is, base, base, func(o, i, _, n, si, _ int) {
		for k := range n {
			off[o+k] = i + k*si + c.index(idx[o+k], xs[axis])*st[axis]
		}
	})
	return off
}

func opGatherElements(c *call) []*Tensor {
	x := c.in[0]
	idx, _ := c.integers(1)
	axis := c.axis(c.int("axis", 0), x.Rank())
	return one(x.take(c.in[1].Shape, c.elementOffsets(idx, c.in[1].Shape, x.Shape, axis)))
}

// tupleBlocks returns the block numbers that index tuples (the last dimension of the indices) point to, within each
// batch. inner is the size of a block.
func (c *call) tupleBlocks(xs []int, indices *Tensor, batchDims int) (blocks []int, inner int) {
	is := indices.Shape
	if len(is) == 0 || batchDims < 0 || batchDims >= len(is) || batchDims+is[len(is)-1] > len(xs) ||
		!slices.Equal(is[:batchDims], xs[:batchDims]) {
		fail("indices of %v with %d batch dimensions do not fit a shape of %v", is, batchDims, xs)
	}
	k := is[len(is)-1]
	dims := xs[batchDims : batchDims+k]
	per := size(is[batchDims : len(is)-1])
	blocks = make([]int, size(is[:len(is)-1]))
	for t := range blocks {
		b := t / per
		for j, d := range dims {
			b = b*d + c.index(indices.I[t*k+j], d)
		}
		blocks[t] = b
	}
	return blocks, size(xs[batchDims+k:])
}

func opGatherND(c *call) []*Tensor {
	x, idx := c.in[0], c.in[1]
	c.integers(1)
	batch := int(c.int("batch_dims", 0))
	blocks, inner := c.tupleBlocks(x.Shape, idx, batch)
	k := idx.Shape[idx.Rank()-1]
	if x.lazy != nil {
		if v, ok := x.lazy.tuples(k, idx.Shape[:idx.Rank()-1], blocks); ok && batch == 0 {
			return one(viewed(x.DataType, v))
		}
		x = try(x.Dense())
	}
	shape := slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[batch+k:])
	check(checkShape(shape))
	return one(x.takeBlocks(shape, blocks, inner))
}

// opCompress keeps the slices along the axis, or the elements, for which the condition holds.
func opCompress(c *call) []*Tensor {
	x := c.in[0]
	cond, _ := c.integers(1)
	if c.attr("axis") == nil {
		x = x.WithShape([]int{x.Len()})
	}
	axis := c.axis(c.int("axis", 0), x.Rank())
	if len(cond) > x.Shape[axis] {
		fail("a condition of %d elements does not fit a dimension of %d", len(cond), x.Shape[axis])
	}
	var rows []int
	for i, k := range cond {
		if k != 0 {
			rows = append(rows, i)
		}
	}
	return one(x.takeRows(axis, rows))
}

// opNonZero returns the indices of the nonzero elements, one column each.
func opNonZero(c *call) []*Tensor {
	x := c.in[0]
	var at []int
	for i := range x.Len() {
		if x.floatAt(i) != 0 {
			at = append(at, i)
		}
	}
	// A scalar counts as a vector of one element, but has no coordinate.
	r := newInts(onnx.Int64, []int{x.Rank(), len(at)})
	st := onnx.RowMajor(x.Shape)
	for d := range x.Rank() {
		for k, i := range at {
			r.I[d*len(at)+k] = int64(i / st[d] % x.Shape[d])
		}
	}
	return one(r)
}

// opReverseSequence reverses the first sequence_lens[b] elements along time_axis, for each b along batch_axis.
func opReverseSequence(c *call) []*Tensor {
	x := c.in[0]
	lens, _ := c.integers(1)
	if x.Rank() < 2 {
		fail("the input has rank %d, expected at least 2", x.Rank())
	}
	batch, time := c.axis(c.int("batch_axis", 1), x.Rank()), c.axis(c.int("time_axis", 0), x.Rank())
	if len(lens) != x.Shape[batch] {
		fail("%d sequence_lens for a batch of %d", len(lens), x.Shape[batch])
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
	return one(x.take(x.Shape, off))
}
