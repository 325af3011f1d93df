package moe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// countsTokens returns a reason if a region numbers tokens one after the other, like mixtures whose experts drop tokens
// above a capacity. A run with a few tokens does not reach the capacity, so no check on such runs would notice. Counts
// by expert, such as the tokens of each, are allowed.
func countsTokens(g *match.View, reg *Region) (why *reason.Reason) {
	reg.eachNode(func(n *onnx.Node) {
		if n.Is("CumSum") && why == nil && alongTokens(g, n) {
			why = reason.New(reason.Capacity, n,
				"%q counts the tokens of an expert: tokens over a capacity may be dropped, but mojo.MoE keeps all",
				n.Outputs[0].Name)
		}
	})
	return why
}

// alongTokens reports whether the size of a CumSum's axis may depend on the number of tokens.
func alongTokens(g *match.View, n *onnx.Node) bool {
	axis, ok := g.Ints(n.Input(1))
	if !ok || len(axis) != 1 {
		return true
	}
	_, fixed := g.Facts.Dim(n.Input(0), int(axis[0]))
	return !fixed
}
