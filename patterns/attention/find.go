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

// Find finds the blocks of a graph. With addedMasks a mask that the standard's op has no attributes for, of a window or
// for queries that see no key, is the Bias of its site where the model adds it to the scores.
func Find(g *match.View, addedMasks bool) (sites []*Site, misses []Miss) {
	known := &alike{g: g, addedMasks: addedMasks, read: map[string]*reading{}}
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
		r, why := readRegion(g, n)
		if r == nil || seen[r.sum] {
			continue
		}
		seen[r.sum] = true
		var s *Site
		if why == nil {
			s, why = known.of(r)
		}
		if why != nil {
			misses = append(misses, Miss{n, why})
			continue
		}
		s.Nodes = nodesOf(g, r, s)
		sites = append(sites, s)
	}
	return sites, misses
}
