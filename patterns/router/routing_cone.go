package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// cone is a memoized result of coneOf and its cost in steps.
type cone struct {
	values map[*onnx.Value]bool
	steps  int
}

// coneOf returns the values computed only from logits (and ids, if they do not follow from these), constants and
// shapes, up to products and experts' weights. Choices from the same logits share the result, and each spends its
// steps. The map must not be changed.
func coneOf(g *match.View, from ...*onnx.Value) map[*onnx.Value]bool {
	known, budget := match.Memo[knownRoutings](g), budgetOf(g)
	if c, ok := known.cones[from[0]]; ok && len(from) == 1 {
		if !budget.Spend(c.steps) {
			return nil
		}
		return c.values
	}
	values, looked := followLogits(g, budget, from)
	if len(from) == 1 && !budget.Spent() {
		if known.cones == nil {
			known.cones = map[*onnx.Value]cone{}
		}
		known.cones[from[0]] = cone{values, looked * lookSteps}
	}
	return values
}

// followLogits is coneOf without the memo; looked counts the visited uses of values.
func followLogits(g *match.View, budget *match.Budget, from []*onnx.Value) (cone map[*onnx.Value]bool, looked int) {
	cone, queue := onnx.SetOf(slices.Values(from)), slices.Clone(from)
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, u := range v.Uses() {
			n := u.Node
			if looked++; !budget.Spend(lookSteps) {
				return cone, looked
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
	return cone, looked
}

// computedFrom reports whether every input of the node is in values, is constant, or follows from shapes.
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

// filledWith returns the number that all elements of v equal.
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

// picksExperts reports whether the node picks blocks of constants: the weights of experts.
func picksExperts(g *match.View, n *onnx.Node) bool {
	if !match.IsPick(n) {
		return false
	}
	rank, ok := g.Facts.Rank(n.Input(0))
	return (!ok || rank > 2) && g.FromConstant(n.Input(0))
}

// MadeOf returns the values of the cone that ids and weights, or gates, are computed from.
func (r *Routing) MadeOf() map[*onnx.Value]bool {
	return onnx.SetOf(onnx.Upstream(func(v *onnx.Value) bool { return !r.cone[v] }, r.Cut()...))
}
