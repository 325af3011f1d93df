package match

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

var differsByRow = reason.New(reason.ScaleShape, nil, "a tensor that differs from row to row")

// rowView is the built-in view Row(w): w holds one number for each channel of the last axis, the same for all rows,
// as the weight of a norm does. Exporters give it leading axes of one, or expand it to all rows; the operand is the
// value of one axis that was there before, or else all axes taken for one.
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

// Row returns the value of one axis that v is made of by giving it leading axes or repeating it along others, as the
// built-in view Row does, or a value whose axes but the last are 1; nil for other values.
func (g *View) Row(v *onnx.Value) *onnx.Value {
	if m, _ := rowView(g, v); m != nil {
		return m.Operands[0].Value
	}
	return nil
}

// unrepeated returns the value that w was made of by putting axes of one before its last axis or by repeating it
// along other axes; nil when it was made otherwise.
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

// isRow reports whether all dimensions of v but the last one are 1.
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
