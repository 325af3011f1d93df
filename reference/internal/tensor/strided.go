package tensor

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Transpose makes dimension i of the result from dimension perm[i].
func Transpose(t *Tensor, perm []int) *Tensor {
	if t.lazy != nil {
		return viewed(t.DataType, t.lazy.transpose(perm))
	}
	st := onnx.RowMajor(t.Shape)
	shape, from := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		shape[i], from[i] = t.Shape[p], st[p]
	}
	return GatherStrided(t, shape, from, 0)
}

// SwapLast transposes the last two dimensions.
func SwapLast(t *Tensor) *Tensor {
	perm := UpTo(t.Rank())
	if n := len(perm); n >= 2 {
		perm[n-1], perm[n-2] = perm[n-2], perm[n-1]
	}
	return Transpose(t, perm)
}

// GatherStrided reads a view of the elements: from an offset, with a stride for each dimension of the shape.
func GatherStrided(t *Tensor, shape, st []int, offset int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: shape, F: ReadStrided(t.F, shape, st, offset),
		I: ReadStrided(t.I, shape, st, offset), S: ReadStrided(t.S, shape, st, offset)}
}

// ReadStrided copies the elements of a shape from an offset, with a stride for each dimension.
func ReadStrided[T any](src []T, shape, st []int, offset int) []T {
	if src == nil { // the elements are of another kind
		return nil
	}
	r := make([]T, Size(shape))
	if len(r) == 0 {
		return r
	}
	Walk2(shape, st, st, func(o, i, _, n, si, _ int) {
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

// Take makes a tensor of the elements at the given offsets.
func Take(t *Tensor, shape []int, index []int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: shape, F: takeSlice(t.F, index), I: takeSlice(t.I, index),
		S: takeSlice(t.S, index)}
}

// TakeBlocks makes a tensor of the blocks of n elements with the given block numbers.
func TakeBlocks(t *Tensor, shape []int, blocks []int, n int) *Tensor {
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

// TakeRows makes a tensor of these rows of a dimension.
func TakeRows(t *Tensor, axis int, rows []int) *Tensor {
	shape := slices.Clone(t.Shape)
	shape[axis] = len(rows)
	inner := Size(t.Shape[axis+1:])
	return TakeBlocks(t, shape, rowPlaces([]int{Size(t.Shape[:axis]), t.Shape[axis]}, 1, rows), inner)
}
