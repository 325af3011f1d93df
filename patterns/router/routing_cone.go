package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// coneOf returns the values that are computed from logits (and the ids, where they are none of the logits'),
// constants and shapes alone, up to products and experts' weights.
func coneOf(g *match.View, from ...*onnx.Value) map[*onnx.Value]bool {
	cone, queue := map[*onnx.Value]bool{}, slices.Clone(from)
	for _, v := range from {
		cone[v] = true
	}
	budget := budgetOf(g)
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, u := range v.Uses() {
			n := u.Node
			if !budget.Spend(lookSteps) {
				return cone
			}
			if n.Graph != g.Graph || n.OutputValue(0) == nil || cone[n.OutputValue(0)] || projects(g, n) ||
				len(n.Subgraphs()) > 0 ||
				n.Is("Shape") || n.Is("Size") || !computedFrom(g, n, cone) || picksExperts(g, n) {
				continue
			}
			for _, out := range n.Outputs {
				if out != nil {
					cone[out] = true
					queue = append(queue, out)
				}
			}
		}
	}
	return cone
}

// computedFrom reports whether every input of the node is among the values, constant, or follows from shapes.
func computedFrom(g *match.View, n *onnx.Node, values map[*onnx.Value]bool) bool {
	return !slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		return v != nil && !values[v] && !g.FromConstant(v) && !isShape(g, v)
	})
}

// isShape reports whether the elements of v follow from constants and shapes.
func isShape(g *match.View, v *onnx.Value) bool {
	if _, ok := g.Facts.Known(v, 0); ok {
		return true
	}
	_, ok := filledWith(g, v)
	return ok
}

// filledWith returns the number that all elements of v are.
func filledWith(g *match.View, v *onnx.Value) (x float64, ok bool) {
	for range match.MaxDetour {
		if x, _, ok := g.Scalar(v); ok {
			return x, true
		}
		n := match.Producer(v)
		if n == nil || !onnx.IsStandardDomain(n.Domain) {
			return 0, false
		}
		switch n.OpType {
		case "ConstantOfShape":
			a := n.Attr("value")
			if a == nil || a.Tensor == nil {
				return 0, true
			}
			t, err := reference.FromONNX(a.Tensor)
			switch {
			case err == nil && len(t.F) == 1:
				return t.F[0], true
			case err == nil && len(t.I) == 1:
				return float64(t.I[0]), true
			}
			return 0, false
		case "Expand", "Tile", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose",
			"Flatten", "Slice":
			v = n.Input(0)
		default:
			return 0, false
		}
	}
	return 0, false
}

// picksExperts reports whether the node takes blocks of constants: the weights of experts.
func picksExperts(g *match.View, n *onnx.Node) bool {
	if !match.IsPick(n) {
		return false
	}
	rank, ok := g.Facts.Rank(n.Input(0))
	return (!ok || rank > 2) && g.FromConstant(n.Input(0))
}

// MadeOf returns the values of the cone that ids and weights, or gates, are made of.
func (r *Routing) MadeOf() map[*onnx.Value]bool {
	return onnx.SetOf(onnx.Upstream(func(v *onnx.Value) bool { return !r.cone[v] }, r.Cut()...))
}
