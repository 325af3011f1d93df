package fit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Miss says why a region that computes nearly what an op does is none.
type Miss struct {
	Op     string
	Anchor *onnx.Node
	Nodes  []*onnx.Node // of the region
	Why    *reason.Reason
}

// finder looks through one graph.
type finder struct {
	g       *match.View
	lab     *lab
	taken   func(*onnx.Node) bool  // a match has the node
	own     map[*onnx.Node]bool    // nodes of what was found
	varying map[*onnx.Value]bool   // memo of varies
	sides   map[*onnx.Value]bool   // memo of isSide
	texts   map[*onnx.Value]string // memo of contents
	tables  map[*onnx.Value]bool   // memo of tabular
	mixing  map[*onnx.Value]bool   // memo of mixes
	inside  map[*onnx.Node]bool    // memo of mayStandInside, but for what is taken
	without map[string]bool        // ops that no region has
	misses  []*Miss
}

func newFinder(g *match.View, taken func(*onnx.Node) bool, without ...string) *finder {
	f := &finder{g: g, lab: newLab(g), own: map[*onnx.Node]bool{}, varying: map[*onnx.Value]bool{},
		sides: map[*onnx.Value]bool{}, texts: map[*onnx.Value]string{}, tables: map[*onnx.Value]bool{},
		mixing: map[*onnx.Value]bool{}, inside: map[*onnx.Node]bool{}, without: map[string]bool{}}
	for _, op := range slices.Concat(foreign, without) {
		f.without[op] = true
	}
	f.taken = func(n *onnx.Node) bool { return f.own[n] || taken(n) }
	return f
}

// take keeps the nodes of a region for it.
func (f *finder) take(r *region) {
	for _, n := range r.nodes {
		f.own[n] = true
	}
}

// miss notes why a region is no block, once for nodes that several regions have.
func (f *finder) miss(op string, anchor *onnx.Node, r *region, why *reason.Reason) {
	if why != nil && !slices.ContainsFunc(f.misses, func(m *Miss) bool {
		return slices.ContainsFunc(m.Nodes, r.has)
	}) {
		f.misses = append(f.misses, &Miss{op, anchor, r.nodes, why})
	}
}
