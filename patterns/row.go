package patterns

import "github.com/mojo-patch/mojo-patch/onnx"

// rowView is the built-in view Row(w): w holds one number for each channel of the last axis, the same for all rows, as the
// weight of a norm does. Exporters give it leading axes of one, or expand it to all rows; the operand is the value of one
// axis that was there before, or else all axes taken for one.
func (g *graphView) rowView(v *onnx.Value) (*viewMatch, *viewMiss) {
	w := v
	var nodes []*onnx.Node
	for range maxDetour {
		if rank, ok := g.facts.Rank(w); ok && rank == 1 {
			return &viewMatch{operands: []block{{w, 1}}, nodes: nodes}, nil
		}
		in := g.unrepeated(w)
		if in == nil {
			break
		}
		nodes = append(nodes, w.Producer)
		w = g.resolve(in)
	}
	if g.isRow(w) {
		rank, _ := g.facts.Rank(w)
		return &viewMatch{operands: []block{{w, rank}}, nodes: nodes}, nil
	}
	return nil, &viewMiss{v, "a tensor that differs from row to row", nil}
}

// unrepeated returns the value that w was made of by putting axes of one before its last axis or by repeating it along other
// axes; nil when it was made otherwise.
func (g *graphView) unrepeated(w *onnx.Value) *onnx.Value {
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
	d, ok1 := g.facts.Dim(w, -1)
	e, ok2 := g.facts.Dim(in, -1)
	if !ok1 || !ok2 || d != e || !g.isRow(in) {
		return nil
	}
	return in
}

// isRow reports whether all dimensions of v but the last one are 1.
func (g *graphView) isRow(v *onnx.Value) bool {
	rank, ok := g.facts.Rank(v)
	if !ok || rank == 0 {
		return false
	}
	for axis := range rank - 1 {
		if d, ok := g.facts.Dim(v, axis); !ok || d != 1 {
			return false
		}
	}
	_, ok = g.facts.Dim(v, -1)
	return ok
}
