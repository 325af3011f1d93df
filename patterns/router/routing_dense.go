package router

import (
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// findDense finds the gates of all experts, and drops the weights if they only lead to these.
func findDense(g *match.View, r *Routing) {
	gates := func(v *onnx.Value) bool {
		return v != r.Logits && g.Facts.SameShape(v, r.Logits) && g.Facts.DataType(v).IsFloat()
	}
	stop := map[*onnx.Value]bool{}
	for v := range r.cone {
		stop[v] = gates(v)
	}
	from := r.IDs
	if r.Weights != nil {
		if leavesCone(r.Weights, r, stop) {
			return
		}
		from = r.Weights
	}
	turned := map[*onnx.Value]bool{} // with as many tokens as experts, transposed gates have the same shape
	for v := range r.cone {
		turned[v] = gates(v) && v.Producer.Is("Transpose") && g.Resolve(v) == v
	}
	var steps []*onnx.Value // without casts and repetitions
	for v := range r.forward(turned, from) {
		if gates(v) && !v.Producer.Is("Cast") && g.Resolve(v) == v && leavesCone(v, r, nil) {
			steps = append(steps, v)
		}
	}
	slices.SortFunc(steps, func(a, b *onnx.Value) int { return g.Position(a.Producer) - g.Position(b.Producer) })
	if n := len(steps); n > 0 && (r.Weights == nil || n > 1 || !spreads(g, steps[0])) {
		r.Dense, r.Weights = lastCast(g, steps[n-1], r), nil
	}
}

// spreads reports whether gates only scatter the weights among zeros.
func spreads(g *match.View, gates *onnx.Value) bool {
	n := gates.Producer
	if !n.Is("ScatterElements") && !n.Is("ScatterND") {
		return true // a sum over the chosen experts, one-hot
	}
	x, ok := filledWith(g, n.Input(0))
	return ok && x == 0
}

// lastCast returns v after its casts, as long as they are its only use.
func lastCast(g *match.View, v *onnx.Value, r *Routing) *onnx.Value {
	for range match.MaxDetour {
		uses := v.Uses()
		if len(uses) != 1 || v.IsOutput() || !uses[0].Node.Is("Cast") || !r.cone[uses[0].Node.OutputValue(0)] ||
			!g.Facts.DataType(uses[0].Node.Outputs[0]).IsFloat() {
			break
		}
		v = uses[0].Node.Outputs[0]
	}
	return v
}

// leavesCone reports whether v is read, perhaps in another form, by a node outside the cone: by the experts. Paths
// through the values of stop do not count.
func leavesCone(v *onnx.Value, r *Routing, stop map[*onnx.Value]bool) bool {
	for w := range r.forward(stop, v) {
		if slices.ContainsFunc(w.Uses(), func(u onnx.Use) bool {
			return !u.Node.Is("Shape") && !u.Node.Is("Size") && !r.cone[u.Node.OutputValue(0)]
		}) {
			return true
		}
	}
	return false
}

// forward yields the given values and the values of the cone that are computed from them, without passing values of
// stop.
func (r *Routing) forward(stop map[*onnx.Value]bool, from ...*onnx.Value) iter.Seq[*onnx.Value] {
	return onnx.Downstream(func(v *onnx.Value) bool {
		return !r.budget.Spend(lookSteps) || !r.cone[v] || stop[v]
	}, from...)
}
