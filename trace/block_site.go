package trace

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// Core is the site at the core of a block: its attention, gate or experts.
type Core struct {
	Block
	Match *patterns.Match
}

// Cores lists the blocks of the main graph whose core is one of these sites, in the order of the model. The sites must
// be found but not yet replaced. A shared expert belongs to the experts' block.
func Cores(m *onnx.Model, sites []rewrite.SiteReport) []Core {
	order := map[*onnx.Node]int{}
	for i, n := range m.Graph.Nodes {
		order[n] = i
	}
	blocks := Blocks(m)
	var list []Core
	for _, s := range sites {
		x := s.Match
		if x == nil || x.Domain != fused.Domain || x.Root.Graph != m.Graph {
			continue
		}
		switch b := blocks[x.Root]; kinds[x.Op] {
		case Attention, MLP, Experts:
			if b.Part == kinds[x.Op] {
				list = append(list, Core{b, x})
			}
		}
	}
	slices.SortStableFunc(list, func(x, y Core) int { return cmp.Compare(order[x.Match.Root], order[y.Match.Root]) })
	return list
}
