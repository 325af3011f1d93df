package moe

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// budgetOf returns the budget of the search for experts. To distinguish 256 separate experts takes as many steps as
// their weights have elements. The other limits grow with the graph. (Exported models take some hundred steps per
// node.)
func budgetOf(g *match.View) *match.Budget {
	size := match.Memo[weightSize](g)
	if *size == 0 {
		*size = 1
		for _, v := range g.Graph.Initializers() {
			*size += weightSize(v.Const.Len())
		}
	}
	return g.Budget(fused.MoEName, match.Limits{
		Each: 1 << 12, Reserve: 1<<28 + len(g.Graph.Nodes)<<10 + int(*size), Shares: 2})
}

// weightSize is the number of elements of the graph's initializers.
type weightSize int64

// lookSteps is the cost in steps of a value that a search visits.
const lookSteps = 16
