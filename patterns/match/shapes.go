package match

import "github.com/mojo-patch/mojo-patch/onnx"

// Block is the last axes of a value, taken as one list of channels in row-major order. The axes before them are its
// rows.
type Block struct {
	Value *onnx.Value
	Axes  int
}

// SameRows reports whether the axes before two blocks are the same.
func (g *View) SameRows(a, b Block) bool {
	n, ok1 := g.rowAxes(a)
	m, ok2 := g.rowAxes(b)
	return ok1 && ok2 && n == m && g.RowsBroadcast(a, b) && g.RowsBroadcast(b, a)
}

// RowsBroadcast reports whether the rows of a broadcast to those of b, without more of them.
func (g *View) RowsBroadcast(a, b Block) bool {
	n, ok1 := g.rowAxes(a)
	m, ok2 := g.rowAxes(b)
	if !ok1 || !ok2 || n > m {
		return false
	}
	for axis := range n {
		d, fixed := g.Facts.Dim(a.Value, axis)
		if !(fixed && d == 1) && !g.Facts.SameDim(a.Value, axis, b.Value, m-n+axis) {
			return false
		}
	}
	return true
}

// rowAxes returns the number of axes before a block.
func (g *View) rowAxes(b Block) (n int, ok bool) {
	n, ok = g.Facts.Rank(b.Value)
	return n - b.Axes, ok && n >= b.Axes
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
