package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// listed reports whether the experts of a token are taken from a table, by its word, say: the logits are for their weights alone then,
// and topK is the GatherElements that takes these.
func (r *routing) listed() bool { return r.topK.Is("GatherElements") }

// start is the place in the graph where the ids are made.
func (g *graphView) start(r *routing) int {
	if r.listed() {
		return g.position(r.ids.Producer)
	}
	return g.position(r.topK)
}

// listsExperts reports whether the indices of a GatherElements are rows of a constant table of places in its last axis.
func (g *graphView) listsExperts(n *onnx.Node) bool {
	experts, ok := g.facts.Dim(n.Input(0), -1)
	v := g.skipCasts(n.Input(1))
	for p := producer(v); p != nil && opKind(p) == "Reshape"; p = producer(v) {
		v = g.skipCasts(p.Input(0))
	}
	pick := producer(v)
	if !ok || pick == nil || !pick.Is("Gather") && !pick.Is("GatherND") {
		return false
	}
	table := g.skipCasts(pick.Input(0)).Constant()
	if table == nil || table.Len() == 0 {
		return false
	}
	t, err := reference.FromONNX(table)
	return err == nil && t.I != nil && slices.Min(t.I) >= 0 && slices.Max(t.I) < experts
}
