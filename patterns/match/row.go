package match

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

var differsByRow = reason.New(reason.ScaleShape, nil, "a tensor that differs from row to row")

// rowView is the built-in view Row(w): w holds one number for each channel of the last axis, the same for all rows,
// like the weight of a norm. Exporters add leading axes of size 1 or expand it to all rows. The operand is the earlier
// value with one axis or, if there is none, w with all axes as one.
func rowView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	w := v
	var nodes []*onnx.Node
	for range MaxDetour {
		if rank, ok := g.Facts.Rank(w); ok && rank == 1 {
			return &ViewMatch{Operands: []Block{{w, 1}}, Nodes: nodes}, nil
		}
		in := g.unrepeated(w)
		if in == nil {
			break
		}
		nodes = append(nodes, w.Producer)
		w = g.Resolve(in)
	}
	if g.isRow(w) {
		rank, _ := g.Facts.Rank(w)
		return &ViewMatch{Operands: []Block{{w, rank}}, Nodes: nodes}, nil
	}
	return nil, &ViewMiss{v, differsByRow, nil}
}

// Row returns the value of one axis that v extends or repeats, like the built-in view Row, or a value whose axes except
// the last are 1. It returns nil for other values.
func (g *View) Row(v *onnx.Value) *onnx.Value {
	if m, _ := rowView(g, v); m != nil {
		return m.Operands[0].Value
	}
	return nil
}

// unrepeated returns the value that w extends by axes of size 1 before the last, or repeats along other axes. It
// returns nil for other values.
func (g *View) unrepeated(w *onnx.Value) *onnx.Value {
	n := w.Producer
	if n == nil || !onnx.IsStandardDomain(n.Domain) || w.Output != 0 {
		return nil
	}
	switch n.OpType {
	case "Expand":
	case "Reshape", "Unsqueeze", "Squeeze":
		if !g.isRow(w) {
			return nil
		}
	default:
		return nil
	}
	in := n.Input(0)
	if in == nil {
		return nil
	}
	d, ok1 := g.Facts.Dim(w, -1)
	e, ok2 := g.Facts.Dim(in, -1)
	if !ok1 || !ok2 || d != e || !g.isRow(in) {
		return nil
	}
	return in
}

// isRow reports whether all dimensions of v except the last are 1.
func (g *View) isRow(v *onnx.Value) bool {
	rank, ok := g.Facts.Rank(v)
	if !ok || rank == 0 {
		return false
	}
	for axis := range rank - 1 {
		if d, ok := g.Facts.Dim(v, axis); !ok || d != 1 {
			return false
		}
	}
	_, ok = g.Facts.Dim(v, -1)
	return ok
}

// A Block is the last axes of a value, taken as one list of channels in row-major order. The axes before them are its
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

// RowsBroadcast reports whether the rows of a broadcast to the rows of b without enlarging them.
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

// As converts dimensions to another integer type.
func As[T, F int | int64](dims []F) []T {
	list := make([]T, len(dims))
	for i, d := range dims {
		list[i] = T(d)
	}
	return list
}

// Elements returns the number of elements of a shape.
func Elements[T int | int64](shape []T) T {
	n := T(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
