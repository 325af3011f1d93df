package router

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// boundaries lists the candidates for the op's logits: the routing's product first, then similar values through which
// all the wanted values are computed. It stops at casts that narrow the type of the logits.
func boundaries(g *match.View, r *Routing, want ...*onnx.Value) []*onnx.Value {
	between := map[*onnx.Value]bool{}
	for v := range onnx.Upstream(func(v *onnx.Value) bool { return !r.cone[v] }, want...) {
		between[v] = true
	}
	r.budget.Spend(lookSteps * len(between))
	order := []*onnx.Value{}
	last := map[*onnx.Value]int{} // position of the last reader
	for v := range between {
		order = append(order, v)
		last[v] = -1
		for _, u := range v.Uses() {
			if slices.ContainsFunc(u.Node.Outputs, func(out *onnx.Value) bool { return between[out] }) {
				last[v] = max(last[v], g.Position(u.Node))
			}
		}
	}
	for _, v := range want {
		last[v] = math.MaxInt
	}
	position := func(v *onnx.Value) int {
		if v == r.Logits || v.Producer == nil {
			return -1
		}
		return g.Position(v.Producer)
	}
	slices.SortFunc(order, func(a, b *onnx.Value) int { return position(a) - position(b) })
	var list []*onnx.Value
	open := -1 // position of the last reader of earlier values
	for _, v := range order {
		if open <= position(v) && likeLogits(g, v, r) {
			list = append(list, v)
		}
		open = max(open, last[v])
	}
	all := slices.Clone(list)
	return slices.DeleteFunc(list, func(v *onnx.Value) bool { return narrowed(g, v, all) })
}

// narrowed reports whether the list only continues v by a cast to a narrower type.
func narrowed(g *match.View, v *onnx.Value, list []*onnx.Value) bool {
	last := v
	for _, w := range list[slices.Index(list, v)+1:] {
		if g.HandsOn(w.Producer, w) != last {
			return false
		}
		if last = w; match.Widens(g.Facts.DataType(w), g.Facts.DataType(v)) {
			return true
		}
	}
	return false
}

// likeLogits reports whether v has a number for each expert in each row of the choice.
func likeLogits(g *match.View, v *onnx.Value, r *Routing) bool {
	a, ok1 := g.Facts.Shape(v, 0)
	b, ok2 := g.Facts.Shape(r.IDs, 0)
	k := r.K
	return hasExperts(g, v, r) && ok1 && ok2 && match.Elements(a)*k == match.Elements(b)*r.Experts
}

// beforeWidening goes back over casts to wider types: the op itself computes in float32.
func beforeWidening(g *match.View, v *onnx.Value) *onnx.Value {
	v = g.Resolve(v)
	for n := match.Producer(v); n != nil && (n.Is("Cast") || n.Is("CastLike")); n = match.Producer(v) {
		in := g.Resolve(n.Input(0))
		t, u := g.Facts.DataType(in), g.Facts.DataType(v)
		if t != u && !match.Widens(t, u) {
			break
		}
		v = in
	}
	return v
}

// maxCorrections bounds the constants that are tried as corrections.
const maxCorrections = 4

// corrections lists the first constants among the nodes' inputs that have a number for each expert.
func corrections(g *match.View, r *Routing, nodes []*onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	for _, n := range nodes {
		for _, in := range n.Inputs {
			if in == nil || r.cone[in] {
				continue
			}
			c := beforeWidening(g, in)
			t := c.Constant()
			if d, ok := g.Facts.Dim(c, -1); t != nil && t.Len() == r.Experts && ok && d == r.Experts &&
				t.DataType.IsFloat() && !slices.Contains(list, c) && len(list) < maxCorrections {
				list = append(list, c)
			}
		}
	}
	return list
}
