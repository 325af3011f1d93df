package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// earlier returns the value before v in the shape of the weights, if v is computed only from it and from values known
// for each expert. Then the step to v may stay after the op.
func (p *reader) earlier(v *onnx.Value) *onnx.Value {
	n := match.Producer(v)
	if n == nil || n == p.r.TopK || v == p.r.Dense || !slices.Contains(p.r.chosen, v) {
		return nil
	}
	var prev *onnx.Value
	for _, in := range p.behind(n) {
		if in == nil {
			return nil
		}
		if oneEach(p.g, in, p.r) && (prev == nil || p.g.Position(in.Producer) < p.g.Position(prev.Producer)) {
			prev = in
		}
	}
	return prev
}

// behind lists the values for the chosen experts that a node reads, directly or through their sums. The list has a nil
// if the node also reads scores of other experts.
func (p *reader) behind(n *onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	for _, in := range n.Inputs {
		switch {
		case in == nil || !p.r.cone[in]:
		case !slices.Contains(p.r.chosen, in):
			if p.g.Facts.DataType(in).IsFloat() && !p.byID(in) {
				list = append(list, nil)
			}
		case oneEach(p.g, in, p.r):
			list = append(list, in)
		default:
			list = append(list, p.behind(in.Producer)...)
		}
	}
	return list
}

// byID reports whether v depends only on the choice, such as elements of a constant that the ids pick.
func (p *reader) byID(v *onnx.Value) bool {
	for w := range onnx.Upstream(func(w *onnx.Value) bool {
		return w == p.r.IDs || !p.r.cone[w] || !p.r.budget.Spend(lookSteps)
	}, v) {
		if w == p.r.Logits {
			return false
		}
	}
	return true
}
