package probe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Matrix is a matrix, or a vector with In = 1, in an initializer.
type Matrix struct {
	Source      *onnx.Value // nil if the elements are not evenly spaced in one initializer
	Offset      int64       // of the first, in elements
	In, Out     int64
	ByIn, ByOut int64 // steps, in elements
}

// Halves splits the outputs of a matrix: into halves, or if interleaved into even and odd ones.
func (m *Matrix) Halves(packing string) (first, second *Matrix) {
	if m == nil {
		return nil, nil
	}
	a, b := *m, *m
	a.Out, b.Out = m.Out/2, m.Out/2
	if packing == "interleaved" {
		a.ByOut, b.ByOut = 2*m.ByOut, 2*m.ByOut
		b.Offset += m.ByOut
	} else {
		b.Offset += a.Out * m.ByOut
	}
	return &a, &b
}

// Adjoined joins the matrices of gate and up if, for every expert, up is stored right after gate; otherwise it returns
// nil. Experts without biases have nil for both.
func Adjoined(gate, up []*Matrix) []*Matrix {
	list := make([]*Matrix, len(gate))
	for i, g := range gate {
		u := up[i]
		if g == nil && u == nil {
			continue
		}
		if g == nil || u == nil || g.In != u.In || g.ByIn != u.ByIn || g.ByOut != u.ByOut ||
			u.Source != g.Source || u.Offset != g.Offset+g.Out*g.ByOut {
			return nil
		}
		m := *g
		m.Out += u.Out
		list[i] = &m
	}
	return list
}

// A Block is a matrix of one expert, as part of an initializer that is read as a table with rows of some length.
type Block struct {
	Source      *onnx.Value
	Length      int64 // of the table's rows
	Row, Column int64 // of the first element
	By          int64 // between columns
	Rows, Columns,
	Size int64 // Rows*Columns = Size elements; the rows of the matrix may be laid end to end
}

// Block returns a matrix as a block whose rows are its outputs, or with inOut its inputs; nil if it is stored
// otherwise.
func (m *Matrix) Block(inOut bool) *Block {
	rows, columns, step, unit := m.Out, m.In, m.ByOut, m.ByIn
	if inOut {
		rows, columns, step, unit = m.In, m.Out, m.ByIn, m.ByOut
	}
	if rows == 1 {
		step = columns
	}
	total, at := m.Source.Constant().Len(), m.Offset
	if columns == 1 {
		unit = 1
	}
	b := &Block{Source: m.Source, Size: rows * columns, By: unit}
	switch width := (columns-1)*unit + 1; {
	case unit < 1 || step < width:
		return nil
	case total%step == 0 && at%step+width <= step:
		b.Length, b.Row, b.Column, b.Rows, b.Columns = step, at/step, at%step, rows, columns
	case step == columns:
		b.Length, b.Column, b.Rows, b.Columns = total, at, 1, b.Size
	default:
		return nil
	}
	return b
}
