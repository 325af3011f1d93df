package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Block is the last axes of a value, taken as one list of channels in row-major order. The axes before them are its
// rows.
type Block struct {
	Value *onnx.Value
	Axes  int
}

// SameRows reports whether the axes before two blocks are the same.
func (g *View) SameRows(a, b Block) bool {
	return g.rows(a, b, func(s, r []int64) bool { return slices.Equal(s, r) })
}

// RowsBroadcast reports whether the rows of a broadcast to those of b.
func (g *View) RowsBroadcast(a, b Block) bool { return g.rows(a, b, shapeBroadcasts) }

// rows reports whether holds is true of the axes before two blocks, in every world.
func (g *View) rows(a, b Block, holds func(a, b []int64) bool) bool {
	for w := range infer.Worlds {
		s, ok1 := g.Facts.Shape(a.Value, w)
		r, ok2 := g.Facts.Shape(b.Value, w)
		if !ok1 || !ok2 || len(s) < a.Axes || len(r) < b.Axes || !holds(s[:len(s)-a.Axes], r[:len(r)-b.Axes]) {
			return false
		}
	}
	return true
}

// shapeBroadcasts reports whether shape a broadcasts to shape b without enlarging it.
func shapeBroadcasts(a, b []int64) bool {
	if len(a) > len(b) {
		return false
	}
	for i, d := range b[len(b)-len(a):] {
		if a[i] != d && a[i] != 1 {
			return false
		}
	}
	return true
}

// As returns dimensions as integers of another type.
func As[T, F int | int64](dims []F) []T {
	list := make([]T, len(dims))
	for i, d := range dims {
		list[i] = T(d)
	}
	return list
}

// Elements counts the elements of a tensor of the shape.
func Elements[T int | int64](shape []T) T {
	n := T(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
