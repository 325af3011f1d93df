package reference

import (
	"math"
	"slices"
)

var scatterOps = map[string]opDef{
	"Scatter":         {fn: opScatterElements, min: 3, arithmetic: true, takes: tensors},
	"ScatterElements": {fn: opScatterElements, min: 3, arithmetic: true, takes: tensors},
	"ScatterND":       {fn: opScatterND, min: 3, arithmetic: true, takes: tensors},
	"TensorScatter":   {fn: opTensorScatter, min: 2, arithmetic: true, takes: tensors},
}

// reductionOf returns the two functions of the attribute reduction; nil functions overwrite.
func (c *call) reductionOf() (ff func(old, new float64) float64, fi func(old, new int64) int64) {
	switch r := c.str("reduction", "none"); r {
	case "none":
	case "add":
		return add, add
	case "mul":
		return multiply, multiply
	case "max":
		return math.Max, greater
	case "min":
		return math.Min, lesser
	default:
		fail("unknown reduction %q", r)
	}
	return nil, nil
}

// scatterBlocks copies x and writes blocks of n elements of u into it.
func (c *call) scatterBlocks(x, u *Tensor, blocks []int, n int) *Tensor {
	ff, fi := c.reductionOf()
	return &Tensor{DataType: x.DataType, Shape: x.Shape,
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

func opScatterElements(c *call) []*Tensor {
	x, u := c.in[0], c.in[2]
	idx, _ := c.integers(1)
	axis := c.axis(c.int("axis", 0), x.Rank())
	if !slices.Equal(c.in[1].Shape, u.Shape) {
		fail("indices of %v and updates of %v differ in shape", c.in[1].Shape, u.Shape)
	}
	c.sameType(0, 2)
	off := c.elementOffsets(idx, u.Shape, x.Shape, axis)
	return one(c.scatterBlocks(x, u, off, 1))
}

func opScatterND(c *call) []*Tensor {
	x, idx, u := c.in[0], c.in[1], c.in[2]
	c.integers(1)
	c.sameType(0, 2)
	blocks, inner := c.tupleBlocks(x.Shape, idx, 0)
	k := idx.Shape[idx.Rank()-1]
	if want := slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[k:]); !slices.Equal(want, u.Shape) {
		fail("updates have the shape %v, expected %v", u.Shape, want)
	}
	return one(c.scatterBlocks(x, u, blocks, inner))
}

// opTensorScatter (opset 24) writes a piece of a sequence into a cache (batch, …, sequence, …) from
// write_indices[batch] on. The circular mode wraps around.
func opTensorScatter(c *call) []*Tensor {
	x, u := c.in[0], c.in[1]
	axis := c.axis(c.int("axis", -2), x.Rank())
	starts, given := c.integers(2)
	circular := c.str("mode", "linear") == "circular"
	c.sameType(0, 1)
	fits := x.Rank() == u.Rank() && axis > 0
	for i := range x.Shape {
		fits = fits && (x.Shape[i] == u.Shape[i] || i == axis && u.Shape[i] <= x.Shape[i])
	}
	if !fits || given && len(starts) != x.Shape[0] {
		fail("an update of %v at %v along axis %d does not fit a cache of %v", u.Shape, starts, axis,
			x.Shape)
	}
	d, n := x.Shape[axis], u.Shape[axis]
	outer, per := size(x.Shape[:axis]), size(x.Shape[1:axis])
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
				fail("write index %d and %d elements leave a cache of %v along axis %d", from, n,
					x.Shape, axis)
			}
			blocks = append(blocks, o*d+k)
		}
	}
	return one(c.scatterBlocks(x, u, blocks, size(x.Shape[axis+1:])))
}
