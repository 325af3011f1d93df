package moe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference"
)

// gatesHold reports whether the gates of all experts are zero for those that a token does not go to, by evaluating
// the nodes between the choice and the gates on an example: the op reads the gates of the chosen ones alone.
func gatesHold(g *match.View, r *router.Routing) bool {
	ids, ok := g.Facts.Shape(r.IDs, 0)
	if !ok || match.Elements(ids) == 0 {
		return false
	}
	chosen := make([]int64, match.Elements(ids))
	for i := range chosen { // each token goes to others than the one before it
		chosen[i] = (int64(i)/r.K + int64(i)%r.K*(r.Experts/r.K)) % r.Experts
	}
	env := map[*onnx.Value]*reference.Tensor{}
	env[r.IDs] = reference.NewInts(g.Facts.DataType(r.IDs), match.As[int](ids), chosen)
	var nodes []*onnx.Node
	seen := map[*onnx.Node]bool{}
	whole, made := true, r.MadeOf()
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		n := match.Producer(v)
		if v == nil || env[v] != nil || v.Constant() != nil || seen[n] {
			return
		}
		if t, ok := g.Facts.Known(v, 0); ok {
			env[v], whole = t, whole && !g.Facts.Loose(v)
			return
		}
		if (v == r.Logits || !made[v] || n.Is("TopK")) && g.IsData(v) { // what the scores come from, and chosen ones
			s, ok := g.Facts.Shape(v, 0)
			if whole = whole && ok && g.Facts.DataType(v).IsFloat(); whole {
				env[v] = examples(g.Facts.DataType(v), s)
			}
			return
		}
		if n == nil || n.Graph != g.Graph || len(n.Subgraphs()) > 0 || len(seen) > router.MaxRouter {
			whole = false
			return
		}
		seen[n] = true
		for _, in := range n.Inputs {
			visit(in)
		}
		nodes = append(nodes, n)
	}
	visit(r.Dense)
	if !whole || reference.NewForOpset(g.Facts.Opset(), nil, reference.Options{}).Eval(nodes, env) != nil {
		return false
	}
	gates := env[r.Dense]
	if gates == nil || int64(len(gates.F)) != int64(len(chosen))/r.K*r.Experts {
		return false
	}
	for i, x := range gates.F {
		token := int64(i) / r.Experts
		if x != 0 && !slices.Contains(chosen[token*r.K:(token+1)*r.K], int64(i)%r.Experts) {
			return false
		}
	}
	return true
}

// examples returns a tensor of different positive numbers.
func examples(t onnx.DataType, shape []int64) *reference.Tensor {
	v := make([]float64, match.Elements(shape))
	for i := range v {
		v[i] = 0.5 + float64(i%7)/8
	}
	return reference.NewFloats(t, match.As[int](shape), v)
}
