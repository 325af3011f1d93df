package router

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// limits bound the search. Reading a router of 256 experts takes some 50 million steps, and the layers of a model may
// have routers of two forms.
var limits = match.Limits{Each: 1 << 10, Reserve: 1 << 28, Shares: 2}

func budgetOf(g *match.View) *match.Budget { return g.Budget(fused.TopKRouterName, limits) }

// lookSteps is the cost in steps of a value that a search visits.
const lookSteps = 16
