package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// WithMixtures returns the set that also joins routers and experts to one match, whose Parts they are. It is for
// targets that have one op for both; the replacement holds a TopKRouter and a MoE.
func (s *Set) WithMixtures() *Set {
	if !s.has(moeForm) || !s.has(routerForm) || s.has(mixtureForm) {
		return s
	}
	joined := s.Select(func(*Pattern) bool { return true })
	joined.addForm(mixtureForm)
	return joined
}

// mixtures joins the experts of mixtures with the routers that choose them.
func (f *finder) mixtures() []*Match {
	var found []*Match
	routers := map[*onnx.Value][]*Match{} // by outputs
	for _, r := range f.matches {
		if r.Domain == fused.Domain && r.Op == routerForm.op && r.Problem == nil {
			for _, v := range r.Outputs {
				routers[v] = append(routers[v], r)
			}
		}
	}
	for _, m := range f.matches {
		if !isMojo(m, moeForm.op) {
			continue
		}
		var near []*Match // the routers whose choice the experts read
		for _, v := range m.Inputs {
			for _, w := range beforeCasts(v) {
				near = append(near, routers[w]...)
			}
		}
		for i, r := range near {
			if slices.Contains(near[:i], r) {
				continue
			}
			if joined := f.joinMixture(r, m); joined != nil {
				found = append(found, joined)
				break
			}
		}
	}
	return found
}

// joinMixture makes one match of a router and of experts that read its choice, perhaps cast; nil if they read another
// choice.
func (f *finder) joinMixture(router, experts *Match) *Match {
	j := f.join(mixtureForm, experts.Root, router, experts)
	made := j.place(router, nil, nil)
	given := map[*onnx.Value]*site.Operand{}
	nodes := slices.Concat(router.Nodes, experts.Nodes)
	for i, v := range experts.Inputs {
		out, casts := choiceOf(f.view, router, v)
		if out < 0 {
			continue
		}
		w := made[router.Replacement.Outputs[out]]
		for _, n := range casts {
			w = w.Then("Cast", "cast", nil, n.Attributes...)
			nodes = append(nodes, n)
		}
		given[experts.Replacement.Inputs[i]] = w
	}
	if len(given) < 2 { // the experts' numbers and weights
		return nil
	}
	made = j.place(experts, nil, given)
	j.Output(experts.Outputs[0], made[experts.Replacement.Outputs[0]])
	j.Attributes, j.Nodes = experts.Attributes, nodes
	return j.match()
}

// choiceOf returns the index of the router's output that a value is, and the casts between them in order; -1 if there
// is none.
func choiceOf(g *match.View, router *Match, v *onnx.Value) (output int, casts []*onnx.Node) {
	for _, v := range beforeCasts(v) {
		if i := slices.Index(router.Outputs, v); i >= 0 {
			slices.Reverse(casts)
			return i, casts
		}
		casts = append(casts, v.Producer)
	}
	return -1, nil
}

// beforeCasts lists a value and the values before its casts, the last first.
func beforeCasts(v *onnx.Value) (list []*onnx.Value) {
	for range match.MaxDetour {
		list = append(list, v)
		n := match.Producer(v)
		if !n.Is("Cast") {
			break
		}
		v = n.Input(0)
	}
	return list
}
