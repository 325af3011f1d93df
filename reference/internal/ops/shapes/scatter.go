package shapes

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var scatterOps = map[string]op.Def{
	"Scatter":         {Fn: opScatterElements, Min: 3, Arithmetic: true, Takes: op.Tensors},
	"ScatterElements": {Fn: opScatterElements, Min: 3, Arithmetic: true, Takes: op.Tensors},
	"ScatterND":       {Fn: opScatterND, Min: 3, Arithmetic: true, Takes: op.Tensors},
	"TensorScatter":   {Fn: opTensorScatter, Min: 2, Arithmetic: true, Takes: op.Tensors},
}

// reductionOf returns the two functions of the attribute reduction; nil functions overwrite.
func reductionOf(c *op.Call) (ff func(old, new float64) float64, fi func(old, new int64) int64) {
	switch r := c.Str("reduction", "none"); r {
	case "none":
	case "add":
		return elementwise.Add, elementwise.Add
	case "mul":
		return elementwise.Multiply, elementwise.Multiply
	case "max":
		return math.Max, elementwise.Greater
	case "min":
		return math.Min, elementwise.Lesser
	default:
		tensor.Fail("unknown reduction %q", r)
	}
	return nil, nil
}

// scatterBlocks copies x and writes blocks of n elements of u into it.
func scatterBlocks(c *op.Call, x, u *tensor.Tensor, blocks []int, n int) *tensor.Tensor {
	ff, fi := reductionOf(c)
	return &tensor.Tensor{DataType: x.DataType, Shape: x.Shape,
		F: scatterSlice(x.F, u.F, blocks, n, ff), I: scatterSlice(x.I, u.I, blocks, n, fi),
		S: scatterSlice(x.S, u.S, blocks, n, nil)}
}

func scatterSlice[T any](x, u []T, blocks []int, n int, f func(old, new T) T) []T {
	if x == nil {
		return nil
	}
	r := slices.Clone(x)
	for b, at := range blocks {
		dst, src := r[at*n:(at+1)*n], u[b*n:(b+1)*n]
		if f == nil {
			copy(dst, src)
			continue
		}
		for i, v := range src {
			dst[i] = f(dst[i], v)
		}
	}
	return r
}

func opScatterElements(c *op.Call) []*tensor.Tensor {
	x, u := c.In[0], c.In[2]
	idx, _ := c.Integers(1)
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	if !slices.Equal(c.In[1].Shape, u.Shape) {
		tensor.Fail("indices of %v and updates of %v differ in shape", c.In[1].Shape, u.Shape)
	}
	c.SameType(0, 2)
	off := elementOffsets(c, idx, u.Shape, x.Shape, axis)
	return op.One(scatterBlocks(c, x, u, off, 1))
}

func opScatterND(c *op.Call) []*tensor.Tensor {
	x, idx, u := c.In[0], c.In[1], c.In[2]
	c.Integers(1)
	c.SameType(0, 2)
	blocks, inner := tupleBlocks(c, x.Shape, idx, 0)
	k := idx.Shape[idx.Rank()-1]
	if want := slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[k:]); !slices.Equal(want, u.Shape) {
		tensor.Fail("updates have the shape %v, expected %v", u.Shape, want)
	}
	return op.One(scatterBlocks(c, x, u, blocks, inner))
}

// opTensorScatter (opset 24) writes a piece of a sequence into a cache (batch, …, sequence, …) from
// write_indices[batch] on. The circular mode wraps around.
func opTensorScatter(c *op.Call) []*tensor.Tensor {
	x, u := c.In[0], c.In[1]
	axis := c.Axis(c.Int("axis", -2), x.Rank())
	starts, given := c.Integers(2)
	circular := c.Str("mode", "linear") == "circular"
	c.SameType(0, 1)
	fits := x.Rank() == u.Rank() && axis > 0
	for i := range x.Shape {
		fits = fits && (x.Shape[i] == u.Shape[i] || i == axis && u.Shape[i] <= x.Shape[i])
	}
	if !fits || given && len(starts) != x.Shape[0] {
		tensor.Fail("an update of %v at %v along axis %d does not fit a cache of %v", u.Shape, starts, axis,
			x.Shape)
	}
	d, n := x.Shape[axis], u.Shape[axis]
	outer, per := tensor.Size(x.Shape[:axis]), tensor.Size(x.Shape[1:axis])
	blocks := make([]int, 0, outer*n)
	for o := range outer {
		from := 0
		if given {
			from = int(starts[o/per])
		}
		for j := range n {
			k := from + j
			if circular && d > 0 {
				k = (k%d + d) % d
			}
			if k < 0 || k >= d {
				tensor.Fail("write index %d and %d elements leave a cache of %v along axis %d", from, n,
					x.Shape, axis)
			}
			blocks = append(blocks, o*d+k)
		}
	}
	return op.One(scatterBlocks(c, x, u, blocks, tensor.Size(x.Shape[axis+1:])))
}
