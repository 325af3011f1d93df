// Package router finds the routers of mixtures of experts. All lists the choices in a graph that select among experts,
// by data dependences. Read fits mojo.TopKRouter to the nodes between a choice's logits and its weights.
package router

import (
	"cmp"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// A Router is a routing as mojo.TopKRouter computes it. Its fields are the op's inputs and attributes.
type Router struct {
	*Routing
	Logits, Bias *onnx.Value
	score, order string
	groups       groupLimit
	renormalize  bool
	epsilon      float64
	scale        float64
	Gives        *onnx.Value // the op's output: the weights, the gates of all experts, or an earlier value
	Sharpness    float64     // factor of the logits, applied before the op
}

// scoreFirst is the order that allows a choice of groups.
const scoreFirst = "score_first"

// Cut returns the values of the routing that the experts read.
func (r *Routing) Cut() []*onnx.Value { return []*onnx.Value{r.IDs, r.Weights, r.Dense} }

// maxExperts bounds the experts of a routing that is read.
const maxExperts = 1 << 11

// Read reads a routing as mojo.TopKRouter computes it: the op computes the ids and found.Gives. Otherwise why is the
// reason that the op cannot compute it.
//
// The op's weights are the last value on the path to the routing's weights that it can compute. Later steps that only
// use the weights of the chosen experts, such as a factor of each expert, stay in the graph.
func Read(g *match.View, r *Routing) (found *Router, why *reason.Reason) {
	switch {
	case r.listed():
		return nil, noRouter(r.TopK, "experts from a table instead of from scores")
	case r.Weights == nil && r.Dense == nil:
		return nil, noRouter(r.TopK, "a choice of experts without weights")
	case r.inAnyOrder(g) != nil:
		return nil, noRouter(r.TopK,
			"experts in any order (sorted=0) in the output %q: the op sorts them", r.inAnyOrder(g).Name)
	case r.Experts > maxExperts:
		return nil, noRouter(r.TopK, "a choice among %d experts, more than %d", r.Experts, maxExperts)
	}
	r.budget.Begin(r.TopK)
	defer r.budget.End()
	found, why = newReader(g, r).known(match.Memo[probe.Readings[Router]](g))
	if r.budget.Spent() { // an unfinished run proves nothing
		return nil, reason.New(reason.Limit, r.TopK, "the search stopped at its limit of steps")
	}
	if found != nil {
		r.budget.Found()
	}
	return found, why
}

// inAnyOrder returns an output of the model with a number for each expert of an unsorted TopK. It returns nil if there
// is none, for example if the model only outputs sums over the experts.
func (r *Routing) inAnyOrder(g *match.View) *onnx.Value {
	if !r.TopK.Is("TopK") || r.TopK.AttrInt("sorted", 1) == 1 || r.K == 1 {
		return nil
	}
	for v := range onnx.Downstream(func(v *onnx.Value) bool {
		return !oneEach(g, v, r) && !v.Producer.MovesElements() && !v.Producer.Is("Reshape")
	}, r.TopK.Outputs...) {
		if v != nil && v.IsOutput() {
			return v
		}
	}
	return nil
}

// last reads the last value that the op can compute.
func (p *reader) last() (*Router, *reason.Reason) {
	last, what := p.r.Dense, "gates"
	if last == nil {
		last, what = p.r.Weights, "weights"
	}
	var first *miss
	for v := last; v != nil; v = p.earlier(v) {
		found, unsaid := p.read(v)
		if found != nil {
			found.Gives = v
			return found, nil
		}
		first = cmp.Or(first, unsaid)
	}
	if n := p.stray(last); n != nil && (first.rank == weighed || first.rank == divided) {
		if first.why.Node = n; first.rank == weighed {
			first.why = noRouter(n, "%s on the way to the %s", n.OpType, what)
		}
	}
	return nil, first.why
}

// noRouter returns the reason, at a node, why mojo.TopKRouter cannot compute the routing.
func noRouter(at *onnx.Node, format string, args ...any) *reason.Reason {
	return reason.New(reason.Router, at, format, args...)
}

// groupLimit is the part of a router that excludes the experts of all but the best groups.
type groupLimit struct {
	count, topK int64
	score       string  // "max" or "top2_sum"
	excluded    float64 // the score of excluded experts: 0 or minus infinity
}

var noGroups = groupLimit{count: 1, topK: 1, score: "max", excluded: math.Inf(-1)}
