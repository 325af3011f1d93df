package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Find finds the routers of mixtures of experts. The score, the order of scoring and choosing, the groups and the
// weights are fitted to the graph's computation.
func Find(g *match.View, others site.Others) (sites []*site.Site, misses []*match.Miss) {
	miss := func(at *onnx.Node, why *reason.Reason) {
		misses = append(misses, &match.Miss{Pattern: fused.TopKRouterName, Anchor: at, Reason: why})
	}
	for _, r := range All(g) {
		if slices.ContainsFunc(r.Cut(), func(v *onnx.Value) bool { return v != nil && others.Write(v) }) {
			continue
		}
		found, why := Read(g, r)
		switch {
		case found != nil:
			sites = append(sites, found.site(g))
		case why.Code != reason.Limit:
			miss(r.TopK, why)
		}
	}
	for _, why := range Thresholds(g) {
		miss(why.Node, why)
	}
	return sites, misses
}

// site returns the site at which mojo.TopKRouter computes r.IDs and r.Gives.
func (r *Router) site(g *match.View) *site.Site {
	facts, v := g.Facts, r.Gives
	s := site.New(g, fused.TopKRouterName, r.TopK)
	logits := s.Input(fused.RoleLogits, "logits", r.Logits)
	rank, _ := facts.Rank(r.Logits)
	if n, _ := facts.Rank(r.TopK.Input(0)); n != rank { // chosen in rows of all tokens
		logits = logits.With("Reshape", "logits_rows", "rows", -1, r.Experts)
		rank = 2
	}
	if r.Sharpness != 1 {
		logits = logits.CastAs("logits_32", onnx.Float)
		factor := s.Constant("sharpness", onnx.NewFloat32s("", nil, []float32{float32(r.Sharpness)}))
		logits = logits.Then("Mul", "logits_scaled", []*site.Operand{factor})
	}
	var bias *site.Operand
	if r.Bias != nil {
		bias = s.Input(fused.RoleCorrection, "correction_bias", r.Bias)
		if n, ok := facts.Rank(r.Bias); ok && n != 1 {
			bias = bias.With("Reshape", "correction_bias_row", "row", -1)
		}
	}
	out := s.Compute(r.Op(), []string{"weights", "ids"}, logits, bias)
	weights, ids := out[0], out[1]
	weights.Type, ids.Type = onnx.Float, onnx.Int64
	if v == r.Dense {
		zeros := logits.Then("Shape", "gates_shape", nil).Then("ConstantOfShape", "no_gates", nil)
		weights = zeros.Then("ScatterElements", "gates", []*site.Operand{ids, weights}, onnx.IntAttr("axis", -1))
		weights.Type = onnx.Float
	}
	if n, ok := facts.Rank(r.IDs); ok && n == rank-1 { // an ArgMax without the axis
		last := []*site.Operand{s.Integers("last", -1)}
		ids = ids.Then("Squeeze", "id", last)
		if m, ok := facts.Rank(v); ok && m == n {
			weights = weights.Then("Squeeze", "weight", last)
		}
	}
	s.Output(v, weights.CastAs("weights_cast", facts.DataType(v)))
	s.Output(r.IDs, ids.CastAs("ids_cast", facts.DataType(r.IDs))) // the ids of a sort of pairs
	s.Nodes = r.Nodes(g)
	return s
}

// Op returns mojo.TopKRouter with its attributes.
func (r *Router) Op() fused.TopKRouter {
	return fused.TopKRouter{TopK: int64(r.K), Score: r.score, Order: r.order, Groups: int64(r.groups.count),
		GroupTopK: int64(r.groups.topK), GroupScore: r.groups.score, ExcludedScore: float32(r.groups.excluded),
		Renormalize: r.renormalize, Epsilon: float32(r.epsilon), Scale: float32(r.scale)}
}

// Nodes returns the nodes between the op's inputs and outputs.
func (r *Router) Nodes(g *match.View) []*onnx.Node {
	var nodes []*onnx.Node
	for v := range onnx.Upstream(func(v *onnx.Value) bool {
		return v == r.Logits || v == r.Bias || v.Graph != g.Graph || v.Producer == nil || v.Constant() != nil ||
			!r.cone[v] && isShape(g, v)
	}, r.Gives, r.IDs) {
		nodes = append(nodes, v.Producer)
	}
	return nodes
}
