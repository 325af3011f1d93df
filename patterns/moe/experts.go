package moe

import (
	"cmp"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
)

// Experts describes the computation of a region as far as it can be read from the graph: a hypothesis, which the check
// compares with the nodes of the region for all experts.
type Experts struct {
	*Region
	GateUp *Stack // gate and up as one product, or the only product without a gate
	// Gate and Up are the weights of two products; then GateUp is nil.
	Gate, Up *Stack
	Down     *Stack

	GateUpBias, GateBias, UpBias, DownBias *Stack // nil if missing

	Unit   *unit
	Scaled bool // the weights multiply the experts' inputs instead of their outputs
	// Shape is the shape of the result if the op's differs, -1 for an unknown dimension.
	Shape []int64
}

// A Stack is a weight or a bias of all experts: a block of an initializer for each.
type Stack struct {
	Blocks []*probe.Block
	Dims   []int64 // of all blocks together
	InOut  bool    // matrices are [in, out] instead of [out, in] as in torch.nn.Linear
}

// Behind finds the experts that a router chooses, or why it cannot.
func Behind(g *match.View, r *router.Routing) (e *Experts, why *reason.Reason) {
	budget := budgetOf(g)
	budget.Begin(r.TopK)
	defer budget.End()
	e, why = behind(g, r)
	switch {
	case budget.Spent(): // an unfinished run proves nothing
		return nil, givenUp(r)
	case e != nil:
		budget.Found()
	}
	return e, why
}

func givenUp(r *router.Routing) *reason.Reason {
	return reason.New(reason.Limit, r.TopK, "the search stopped at its limit of steps")
}

func behind(g *match.View, r *router.Routing) (e *Experts, why *reason.Reason) {
	regions, why := Regions(g, r, nil)
	if len(regions) == 0 {
		return nil, why
	}
	if e, why = expertsAmong(g, regions); e != nil || r.K > 1 {
		return e, why
	}
	// If each token goes to one expert, rows in the order of the experts look like the sums for the tokens.
	for range maxEnds {
		if regions, _ = Regions(g, r, regions[0].Result.Producer); len(regions) == 0 {
			break
		}
		if e, _ := expertsAmong(g, regions); e != nil {
			return e, nil
		}
	}
	return nil, why
}

// expertsAmong finds the experts of one of the regions, which have the same result.
func expertsAmong(g *match.View, regions []*Region) (e *Experts, why *reason.Reason) {
	for _, reg := range regions {
		if why := countsTokens(g, reg); why != nil {
			return nil, why
		}
		e, unread := readAlike(g, reg)
		if e != nil {
			unread = e.unsaid(g)
		}
		if unread == nil {
			return e, nil
		}
		if why = cmp.Or(why, unread); reg.sure {
			why = unread
			break
		}
	}
	why.Node = regions[0].Result.Producer
	return nil, why
}

// unsaid returns the reason why the op cannot compute the experts, or nil.
func (e *Experts) unsaid(g *match.View) *reason.Reason {
	if e.GateUp == nil && e.Gate.InOut != e.Up.InOut {
		return reason.New(reason.ExpertWeights, nil, "the weights of gate and up are stored in different layouts")
	}
	if r := e.Routing; r.Weights == nil && !gatesHold(g, r) {
		return reason.New(reason.Unknown, nil,
			"the gates are not known to be zero for experts that a token does not go to")
	}
	if mayDiffer(g, e.X(), e.Routing.IDs) {
		return reason.New(reason.Experts, nil, "the tokens %q and the choices %q may differ in number", e.X().Name,
			e.Routing.IDs.Name)
	}
	rank, _ := g.Facts.Rank(e.Result)
	if e.Scaled && rank == 2 || !e.Scaled && g.Facts.SameShape(e.X(), e.Result) {
		return nil
	}
	e.Shape = make([]int64, rank)
	open := 0
	for i := range e.Shape {
		d, ok := g.Facts.Dim(e.Result, i)
		if e.Shape[i] = d; !ok {
			e.Shape[i] = -1
			open++
		}
	}
	if open > 1 || rank == 0 {
		return reason.New(reason.Experts, nil, "the tokens %q and the result %q have different shapes", e.X().Name,
			e.Result.Name)
	}
	return nil
}

// mayDiffer reports whether tokens and their choices may have different dimensions before the last one, although these
// are equal in the worlds.
func mayDiffer(g *match.View, x, ids *onnx.Value) bool {
	rank, _ := g.Facts.Rank(x)
	if other, _ := g.Facts.Rank(ids); other != rank {
		return false
	}
	for axis := range max(rank-1, 0) {
		if g.Facts.MayDiffer(x, axis, ids, axis) {
			return true
		}
	}
	return false
}
