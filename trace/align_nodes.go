package trace

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// provenance pairs the results of fused nodes with the results of the nodes that they replaced.
func (x *aligner) provenance() {
	a, b := x.sides[0].model.Graph, x.sides[1].model.Graph
	for _, s := range []struct {
		from, to *onnx.Graph
		pair     func(v, w *onnx.Value) bool
	}{
		{b, a, func(v, w *onnx.Value) bool { return x.pair(w, v, ByProvenance) }},
		{a, b, func(v, w *onnx.Value) bool { return x.pair(v, w, ByProvenance) }},
	} {
		named := map[string]*onnx.Node{} // nil for a name that two nodes share
		for _, n := range s.to.Nodes {
			if _, taken := named[n.Label()]; taken {
				named[n.Label()] = nil
				continue
			}
			named[n.Label()] = n
		}
		same, _ := sites(s.to)
		groups, order := sites(s.from)
		for _, key := range order {
			if twin := same[key]; twin != nil { // both models are patched
				pairResults(results(groups[key]), results(twin), s.pair)
				continue
			}
			var stands []*onnx.Node
			for _, name := range edit.SourceNodes(groups[key][0]) {
				if n := named[name]; n != nil {
					stands = append(stands, n)
				}
			}
			pairResults(results(groups[key]), results(stands), s.pair)
		}
	}
}

// sites groups the nodes that record the same source nodes.
func sites(g *onnx.Graph) (groups map[string][]*onnx.Node, order []string) {
	groups = map[string][]*onnx.Node{}
	for _, n := range g.Nodes {
		if names := edit.SourceNodes(n); len(names) > 0 {
			key := strings.Join(names, "\x00")
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], n)
		}
	}
	return groups, order
}

// result is an output of a group of nodes that is used outside the group. It is last if no node of the group reads it.
type result struct {
	value *onnx.Value
	last  bool
}

func results(nodes []*onnx.Node) []result {
	within := map[*onnx.Node]bool{}
	for _, n := range nodes {
		n.Walk(func(n *onnx.Node) { within[n] = true })
	}
	var list []result
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			inside := 0
			for _, u := range v.Uses() {
				if within[u.Node] {
					inside++
				}
			}
			if v.IsOutput() || inside < len(v.Uses()) {
				list = append(list, result{v, inside == 0})
			}
		}
	}
	return list
}

// pairResults pairs the results of two groups of nodes: first by name, then a single remaining result of each, of all
// or of the last ones.
func pairResults(from, to []result, pair func(v, w *onnx.Value) bool) {
	from, to = slices.Clone(from), slices.Clone(to)
	for i := 0; i < len(from); i++ {
		k := slices.IndexFunc(to, func(r result) bool { return r.value.Name == from[i].value.Name })
		if k >= 0 {
			pair(from[i].value, to[k].value)
			from, to = slices.Delete(from, i, i+1), slices.Delete(to, k, k+1)
			i--
		}
	}
	open := func(r result) bool { return !r.last }
	if len(to) > 1 {
		to = slices.DeleteFunc(to, open)
	}
	if len(from) > 1 {
		from = slices.DeleteFunc(from, open)
	}
	if len(from) == 1 && len(to) == 1 {
		pair(from[0].value, to[0].value)
	}
}

// weights pairs the inputs and outputs of nodes that are the only ones of their op with certain weights.
func (x *aligner) weights() bool {
	var only [2]map[string]*onnx.Node
	for i, s := range x.sides {
		only[i] = map[string]*onnx.Node{}
		for _, n := range s.model.Graph.Nodes {
			if key := x.weightKey(s, n); key != "" {
				if _, twice := only[i][key]; twice {
					only[i][key] = nil
					continue
				}
				only[i][key] = n
			}
		}
	}
	changed := false
	for _, n := range x.sides[0].model.Graph.Nodes {
		key := x.weightKey(x.sides[0], n)
		if m := only[1][key]; key != "" && m != nil && only[0][key] == n {
			changed = x.pairNodes(n, m, ByWeights) || changed
			for i, v := range n.Outputs {
				changed = x.pair(v, m.OutputValue(i), ByWeights) || changed
			}
		}
	}
	return changed
}

// weightKey identifies a node's op and its constants of at least 16 elements. It is empty without such constants.
func (x *aligner) weightKey(s *side, n *onnx.Node) string {
	key := ""
	for i, v := range n.Inputs {
		if t := constantOf(v); t != nil && t.DataType.IsFloat() && t.Len() >= 16 {
			key += digits(i) + "=" + digits(x.constant(v, t)) + ";"
		}
	}
	if key == "" {
		return ""
	}
	return s.keys[n] + key
}

func constantOf(v *onnx.Value) *onnx.Tensor {
	if v == nil {
		return nil
	}
	return v.Constant()
}

// use pairs the inputs of equal nodes whose outputs are paired.
func (x *aligner) use() bool {
	changed := false
	nodes := x.sides[0].model.Graph.Nodes
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		for k, v := range n.Outputs {
			if w := x.partner[v]; v != nil && w != nil && w.Producer != nil && w.Output == k {
				changed = x.pairNodes(n, w.Producer, ByUse) || changed
				break
			}
		}
	}
	return changed
}

// pairNodes pairs the inputs of two nodes of one op in order. For a commutative op, all inputs except one must already
// be paired.
func (x *aligner) pairNodes(n, m *onnx.Node, by string) bool {
	if x.sides[0].keys[n] != x.sides[1].keys[m] || len(n.Inputs) != len(m.Inputs) || len(n.Subgraphs()) > 0 {
		return false
	}
	var left [2][]*onnx.Value
	for i, v := range n.Inputs {
		w := m.Inputs[i]
		if (v == nil) != (w == nil) {
			return false
		}
		if v != nil && v.Constant() == nil && x.partner[v] == nil {
			left[0] = append(left[0], v)
		}
		if w != nil && w.Constant() == nil && x.partner[w] == nil {
			left[1] = append(left[1], w)
		}
	}
	if len(left[0]) != len(left[1]) || len(left[0]) > 1 && (n.Is("Add") || n.Is("Mul")) {
		return false
	}
	changed := false
	for i, v := range left[0] {
		changed = x.pair(v, left[1][i], by) || changed
	}
	return changed
}

// names pairs values of the same name that are computed from a common pair with no other pair in between.
func (x *aligner) names() bool {
	var near [2]map[*onnx.Value][]int
	for i, s := range x.sides {
		near[i] = x.upstream(s.model.Graph)
	}
	changed := false
	for _, n := range x.sides[0].model.Graph.Nodes {
		for _, v := range n.Outputs {
			if v == nil || x.partner[v] != nil {
				continue
			}
			w := x.sides[1].model.Graph.Value(v.Name)
			if w != nil && w.Producer != nil && meet(near[0][v], near[1][w]) {
				changed = x.pair(v, w, ByName) || changed
			}
		}
	}
	return changed
}

// maxNear bounds the number of upstream pairs per value.
const maxNear = 32

// upstream lists, for each value without a partner, the numbers of the nearest pairs that it is computed from.
func (x *aligner) upstream(g *onnx.Graph) map[*onnx.Value][]int {
	near := map[*onnx.Value][]int{}
	for _, n := range g.Nodes {
		var all []int
		for _, v := range n.Reads() {
			if x.partner[v] != nil {
				all = append(all, x.number[v])
			} else {
				all = append(all, near[v]...)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		all = all[max(0, len(all)-maxNear):]
		for _, v := range n.Outputs {
			near[v] = all
		}
	}
	return near
}

func meet(a, b []int) bool {
	for _, n := range a {
		if _, found := slices.BinarySearchFunc(b, n, cmp.Compare[int]); found {
			return true
		}
	}
	return false
}
