package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// listed reports whether the experts of a token are read from a table, by its word, say. Then the logits only determine
// the weights, and TopK is the GatherElements that picks these.
func (r *Routing) listed() bool { return r.TopK.Is("GatherElements") }

// Start returns the position in the graph of the ids, or of the weights if these come first: the greatest score needs
// no ids.
func Start(g *match.View, r *Routing) int {
	first := r.TopK
	if r.listed() {
		first = r.IDs.Producer
	}
	start := g.Position(first)
	if n := match.Producer(r.Weights); n != nil && n.Graph == g.Graph {
		start = min(start, g.Position(n))
	}
	return start
}

// listsExperts reports whether the indices of a GatherElements are rows of a constant table of indices into its last
// axis.
func listsExperts(g *match.View, n *onnx.Node) bool {
	experts, ok := g.Facts.Dim(n.Input(0), -1)
	v := g.SkipCasts(n.Input(1))
	for p := match.Producer(v); p != nil && match.OpKind(p) == "Reshape"; p = match.Producer(v) {
		v = g.SkipCasts(p.Input(0))
	}
	pick := match.Producer(v)
	if !ok || pick == nil || !pick.Is("Gather") && !pick.Is("GatherND") {
		return false
	}
	table := g.SkipCasts(pick.Input(0)).Constant()
	if table == nil || table.Len() == 0 {
		return false
	}
	t, err := reference.FromONNX(table)
	return err == nil && t.I != nil && slices.Min(t.I) >= 0 && slices.Max(t.I) < experts
}
