package fit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// finder searches one graph.
type finder struct {
	g       *match.View
	lab     *probe.Lab
	budget  *match.Budget
	others  site.Others
	own     map[*onnx.Node]bool           // nodes of blocks found
	varying map[*onnx.Value]bool          // memo of varies
	sides   map[*onnx.Value]bool          // memo of isSide
	texts   map[*onnx.Value]string        // memo of contents
	tables  map[*onnx.Value]bool          // memo of tabular
	joins   map[*onnx.Value]int           // memo of joinsNear, nil until needed
	mixing  map[*onnx.Value]bool          // memo of mixes
	inside  map[*onnx.Node]bool           // memo of mayStandInside, without taken
	without map[string]bool               // ops that are never in a region
	behind  map[*onnx.Value][]*onnx.Value // memo of ahead, until a region is taken
	routed  map[*onnx.Value]bool          // memo of Routed
	plains  map[*onnx.Value]bool          // memo of plain
	missed  map[*onnx.Node]bool           // nodes of misses
	misses  []*match.Miss
}

// limits bound each search. A norm of rows of 4,096 channels takes some 12 million steps, a rotation of 32 heads of 128
// channels 20 million. Image models have many large regions, and no blocks.
var limits = match.Limits{Each: 1 << 9, Reserve: 1 << 26, Shares: 2}

// Costs in steps: to look at a node or value, to also compare its shape, and to write the form of a value.
const (
	lookSteps  = 4
	shapeSteps = 16
	writeSteps = 64
)

func newFinder(g *match.View, op string, others site.Others, without ...string) *finder {
	budget := g.Budget("fit:"+op, limits)
	f := &finder{g: g, others: others, lab: probe.NewLab(g, 4*maxNodes, budget), budget: budget,
		own: map[*onnx.Node]bool{}, varying: map[*onnx.Value]bool{}, behind: map[*onnx.Value][]*onnx.Value{},
		missed: map[*onnx.Node]bool{}, routed: map[*onnx.Value]bool{}, plains: map[*onnx.Value]bool{},
		sides: map[*onnx.Value]bool{}, texts: map[*onnx.Value]string{}, tables: map[*onnx.Value]bool{},
		mixing: map[*onnx.Value]bool{}, inside: map[*onnx.Node]bool{}, without: map[string]bool{}}
	for _, op := range slices.Concat(foreign, without) {
		f.without[op] = true
	}
	return f
}

// taken reports whether a match or a block found here has the node.
func (f *finder) taken(n *onnx.Node) bool { return f.own[n] || f.others.Have(n) }

// take records the nodes of a region as taken, except those that other nodes also read and the nodes before these. They
// stay in the graph: two norms may share a root.
func (f *finder) take(r *region) {
	f.budget.Found()
	stays := map[*onnx.Node]bool{}
	for _, n := range r.Nodes { // the last first
		stays[n] = slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool {
			return v != nil && v != r.Result && slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
				return !r.Has(u.Node) || stays[u.Node]
			})
		})
		f.own[n] = !stays[n]
	}
	clear(f.behind)
}

// miss records why a region is not a block, only once for nodes that several regions have.
func (f *finder) miss(op string, anchor *onnx.Node, r *region, why *reason.Reason) {
	if why == nil || slices.ContainsFunc(r.Nodes, func(n *onnx.Node) bool { return f.missed[n] }) {
		return
	}
	for _, n := range r.Nodes {
		f.missed[n] = true
	}
	f.misses = append(f.misses, &match.Miss{Pattern: "fit:" + op, Anchor: anchor, Region: r.Nodes, Reason: why})
}
