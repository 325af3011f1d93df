package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Routed reports whether v belongs to an expert of a mixture: whether it comes, only through element-wise ops and
// views, from a matrix product whose weight or rows are gathered by data. A dense layer multiplies all rows with a
// constant weight.
func (g *View) Routed(v *onnx.Value) bool {
	left := 64 // the way from an activation back to its product is short
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if n := v.Producer; n != nil && passesThrough[n.OpType] && onnx.IsStandardDomain(n.Domain) {
			return g.resolved(n.Inputs)
		}
		return nil
	}, g.Resolve(v)) {
		n := v.Producer
		if n.IsProduct() && slices.ContainsFunc(n.Inputs, g.picked) || n != nil && IsPick(n) && !g.isFixed(n.Input(1)) {
			return true
		}
		if left--; left == 0 {
			break
		}
	}
	return false
}

// resolved resolves the values; omitted ones stay nil.
func (g *View) resolved(list []*onnx.Value) []*onnx.Value {
	r := make([]*onnx.Value, len(list))
	for i, v := range list {
		r[i] = g.Resolve(v)
	}
	return r
}

// picked reports whether a product's operand is gathered by data, perhaps through views.
func (g *View) picked(v *onnx.Value) bool {
	for range 16 {
		v = g.Resolve(v)
		n := Producer(v)
		switch {
		case n == nil:
			return false
		case IsPick(n):
			return !g.isFixed(n.Input(1)) && !g.isTable(n.Input(0))
		case viewOps[n.OpType] && onnx.IsStandardDomain(n.Domain):
			v = n.Input(0)
		default:
			return false
		}
	}
	return false
}

// isTable reports whether v is a constant matrix: an embedding, whose rows are tokens and not experts.
func (g *View) isTable(v *onnx.Value) bool {
	r, ok := g.Facts.Rank(v)
	return g.SkipCasts(v).Constant() != nil && ok && r <= 2
}

// isFixed reports whether indices do not depend on data: they are constants, follow from shapes, or are the iteration
// number of a Loop that picks the weights of each layer.
func (g *View) isFixed(v *onnx.Value) bool {
	_, ok := g.Facts.Constant(v)
	return ok || g.isRound(v)
}

// isRound reports whether v is the iteration number of a Loop, perhaps through views, and only picks weights.
func (g *View) isRound(v *onnx.Value) bool {
	for range 16 {
		v = g.Resolve(v)
		if n := Producer(v); n != nil && viewOps[n.OpType] && onnx.IsStandardDomain(n.Domain) {
			v = n.Input(0)
			continue
		}
		break
	}
	if v == nil || v.Producer != nil || v.Graph.Parent == nil || len(v.Graph.Inputs) == 0 || v.Graph.Inputs[0] != v {
		return false
	}
	return slices.ContainsFunc(v.Graph.Parent.Nodes, func(n *onnx.Node) bool {
		return n.Is("Loop") && slices.Contains(n.Subgraphs(), v.Graph)
	}) && g.picksWeights(v)
}

// picksWeights reports whether v is used only as indices into constants or inputs of the loop, perhaps through views.
// In a loop over experts, the number is also compared with the experts that tokens were sent to.
func (g *View) picksWeights(v *onnx.Value) bool {
	return !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
		switch n := u.Node; {
		case IsPick(n):
			from := g.SkipCasts(n.Input(0))
			return u.Index != 1 || from.Producer != nil && from.Constant() == nil
		case (viewOps[n.OpType] || n.Is("Identity")) && onnx.IsStandardDomain(n.Domain):
			return !g.picksWeights(n.Outputs[0])
		}
		return true
	})
}

// IsPick reports whether a node picks rows or elements by indices.
func IsPick(n *onnx.Node) bool {
	return n.Is("Gather") || n.Is("GatherND") || n.Is("GatherElements")
}

// viewOps lists the standard ops that move, drop, repeat or cast elements.
var viewOps = onnx.Words("Reshape Transpose Squeeze Unsqueeze Flatten Cast Expand Tile Slice Split")

// passesThrough lists the ops between a product and the gate of a gated MLP.
var passesThrough = onnx.Words(`
	Add Mul Sub Div Clip Min Max Concat Reshape Transpose Squeeze Unsqueeze Flatten Cast Slice Split Neg Where
`)
