package attention

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Miss is something that looks like attention, and why it is no site.
type Miss struct {
	Anchor *onnx.Node
	Why    *reason.Reason
}

// Masks says which masks are the Bias of their site, of those that a model adds to the scores and Site has other fields
// for.
type Masks int

// The choices: none, those that the standard's op has no attributes for (of a window, or for queries that see no key),
// and all.
const (
	NoMasks Masks = iota
	OtherMasks
	AllMasks
)

// Find finds the blocks of a graph.
func Find(g *match.View, added Masks) (sites []*Site, misses []Miss) {
	known := &alike{g: g, asBias: added, read: map[string]*reading{}}
	seen := map[*onnx.Node]bool{} // the second products of those that were looked at
	for _, n := range g.Graph.Nodes {
		if isGroupQuery(n) {
			s, why := readGroupQuery(g, n)
			switch {
			case why != nil:
				misses = append(misses, Miss{n, why})
			case s != nil:
				sites = append(sites, s)
			}
			continue
		}
		if !isAnchor(n) || n.Input(0) == nil || n.OutputValue(0) == nil {
			continue
		}
		regions, why := readRegions(g, n)
		for _, r := range regions {
			if seen[r.sum] {
				continue
			}
			seen[r.sum] = true
			var s *Site
			if why == nil {
				s, why = known.of(r)
			}
			if why != nil {
				misses = append(misses, Miss{n, why})
				break
			}
			s.Nodes = nodesOf(g, r, s)
			sites = append(sites, s)
		}
	}
	return sites, misses
}
