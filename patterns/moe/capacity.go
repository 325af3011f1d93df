package moe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// countsTokens reports whether a region counts tokens one after the other, as mixtures do whose experts take so
// many tokens and drop the rest. How many is a number that no run with a few tokens meets, so that no check on such
// runs would tell; counts of experts, as of the tokens that each of them gets, are none of this.
func countsTokens(g *match.View, reg *Region) (why *reason.Reason) {
	reg.eachNode(func(n *onnx.Node) {
		if n.Is("CumSum") && why == nil && alongTokens(g, n) {
			why = reason.New(reason.Capacity, n,
				"%q counts the tokens of an expert: those over a capacity may be dropped, and mojo.MoE drops none",
				n.Outputs[0].Name)
		}
	})
	return why
}

// alongTokens reports whether the axis of a CumSum is not known to have one size for any number of tokens.
func alongTokens(g *match.View, n *onnx.Node) bool {
	axis, ok := g.Ints(n.Input(1))
	if !ok || len(axis) != 1 {
		return true
	}
	_, fixed := g.Facts.Dim(n.Input(0), int(axis[0]))
	return !fixed
}
