package patterns

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// selects says whether experts are selected by the choice: whether its indices, or what is computed from them, pick from constants
// with one block per expert, or from a tensor with one place per expert, or are compared with the numbers of experts.
func (g *graphView) selects(r *routing) bool {
	queue := []*onnx.Value{r.ids}
	seen := map[*onnx.Node]bool{}
	numbers := map[int64]bool{} // that single experts are compared with
	for len(queue) > 0 && len(seen) < maxRouter {
		v := queue[0]
		queue = queue[1:]
		for _, u := range v.Uses() {
			n := u.Node
			if g.selector(n, u.Index, r, numbers) {
				return true
			}
			if seen[n] || isProduct(n) || n.Is("Shape") || len(n.Subgraphs()) > 0 || n.Is("TopK") && g.facts.DataType(n.Input(0)).IsFloat() {
				continue
			}
			seen[n] = true
			for _, out := range n.Outputs {
				if out != nil {
					queue = append(queue, out)
				}
			}
		}
	}
	return false
}

// selector says whether the node, whose input at is made from the indices of the choice, selects among its experts.
func (g *graphView) selector(n *onnx.Node, at int, r *routing, numbers map[int64]bool) bool {
	if !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "Gather", "GatherElements":
		return at == 1 && g.hasBlocks(n.Input(0), n.AttrInt("axis", 0), r)
	case "GatherND":
		return at == 1 && g.hasBlocks(n.Input(0), n.AttrInt("batch_dims", 0), r)
	case "OneHot": // some have one place more, for experts that are elsewhere
		depth, _, ok := g.scalar(n.Input(1))
		return at == 0 && ok && (depth == float64(r.experts) || depth == float64(r.experts)+1)
	case "ScatterElements", "Scatter":
		size, ok := g.facts.Dim(n.Input(0), int(n.AttrInt("axis", 0)))
		return at == 1 && ok && size == r.experts
	case "ScatterND":
		size, ok := g.facts.Dim(n.Input(0), -1)
		return at == 1 && ok && size == r.experts
	case "Equal":
		if n.Graph != g.g { // in the body of a loop over the experts, or of a branch
			return true
		}
		list, ok := g.ints(n.Input(1 - at))
		if !ok {
			return false
		}
		if len(list) == 1 && list[0] >= 0 && list[0] < r.experts {
			numbers[list[0]] = true
		}
		return int64(len(list)) == r.experts || len(numbers) > 1
	}
	return false
}

// hasBlocks says whether v has a block for each expert along an axis, which is not the last: a weight, or outputs of all experts.
// Choices may be among more than there are weights, of which some stand for no expert.
func (g *graphView) hasBlocks(v *onnx.Value, axis int64, r *routing) bool {
	size, ok := g.facts.Dim(v, int(axis))
	rank, _ := g.facts.Rank(v)
	if axis < 0 {
		axis += int64(rank)
	}
	return ok && rank > 2 && axis < int64(rank)-1 && (size == r.experts || size > 1 && size < r.experts && g.fromConstant(v))
}

// findChosen follows what is computed for the chosen experts alone: the values of the choice, scores gathered by it, their
// activations, sums and quotients.
func (g *graphView) findChosen(r *routing) {
	parts := append([]*routing{r}, r.joined...)
	r.byID = g.forward([]*onnx.Value{r.ids}, r, nil)
	chosen := map[*onnx.Value]bool{}
	queue := []*onnx.Value{}
	add := func(v *onnx.Value) {
		if v != nil && !chosen[v] {
			chosen[v] = true
			r.chosen = append(r.chosen, v)
			queue = append(queue, v)
		}
	}
	for _, p := range parts {
		if p.topK.Is("TopK") {
			add(p.topK.OutputValue(0))
		}
	}
	for v := range r.cone { // in any order: r.chosen is sorted below
		if v.Output == 0 && v != r.logits && g.gathered(v.Producer, r) != nil && g.likeAny(v, parts) {
			add(v)
		}
	}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, u := range v.Uses() {
			if out := u.Node.OutputValue(0); r.cone[out] && len(u.Node.Outputs) == 1 && g.facts.DataType(out).IsFloat() && g.likeAny(out, parts) &&
				!g.leavesShape(u.Node, v, parts) {
				add(out)
			}
		}
	}
	slices.SortFunc(r.chosen, func(a, b *onnx.Value) int { return g.position(a.Producer) - g.position(b.Producer) })
	r.weights = g.lastOnEveryWay(r, chosen)
}

// lastOnEveryWay gives the last chosen value in the shape of the ids that all of the chosen values which the experts read come
// through; nil where there is none. What is computed from the logits alone, such as a loss, counts for nothing unless it is all that
// is read.
func (g *graphView) lastOnEveryWay(r *routing, chosen map[*onnx.Value]bool) *onnx.Value {
	var exits []*onnx.Value
	for _, v := range r.chosen {
		if g.leavesCone(v, r, chosen) {
			exits = append(exits, v)
		}
	}
	if len(exits) == 0 {
		for _, v := range r.chosen {
			if v.IsOutput() {
				exits = append(exits, v)
			}
		}
	}
	inputs := func(v *onnx.Value) []*onnx.Value {
		return slices.DeleteFunc(slices.Clone(v.Producer.Inputs), func(in *onnx.Value) bool { return !chosen[in] })
	}
	for i := len(r.chosen) - 1; i >= 0 && len(exits) > 0; i-- {
		last := r.chosen[i]
		if !g.facts.SameShape(last, r.ids) {
			continue
		}
		seen := map[*onnx.Value]bool{last: true}
		stack := slices.Clone(exits)
		around := false // whether there is a way from the choice to an exit that passes last by
		for len(stack) > 0 && !around {
			v := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[v] {
				continue
			}
			seen[v] = true
			before := inputs(v)
			around = len(before) == 0
			stack = append(stack, before...)
		}
		if !around {
			return last
		}
	}
	return nil
}

// gathered gives the scores of all experts that a node takes those of the chosen ones out of; nil for other nodes.
func (g *graphView) gathered(n *onnx.Node, r *routing) *onnx.Value {
	all := func(v *onnx.Value) bool { return v != nil && r.cone[v] && g.hasExperts(v, r) }
	switch {
	case n == nil || !onnx.IsStandardDomain(n.Domain):
	case isPick(n) && all(n.Input(0)) && r.cone[n.Input(1)]:
		return n.Input(0)
	case n.Is("ReduceMax") && r.topK.Is("ArgMax") && all(n.Input(0)) && !r.byID[n.Input(0)] && g.reducesLastAxis(n): // the greatest is the chosen one
		return n.Input(0)
	case (n.Is("ReduceSum") || n.Is("ReduceMax")) && r.k == 1 && g.reducesLastAxis(n): // all but one are masked
		m := producer(g.skipCasts(n.Input(0)))
		if m.Is("Mul") && len(m.Inputs) == 2 {
			for i, v := range m.Inputs {
				if all(v) && !r.byID[v] && r.byID[m.Inputs[1-i]] {
					return v
				}
			}
		}
	}
	return nil
}

// leavesShape says whether the node makes of v, which has a number for each chosen expert, a tensor that has none for each, and is no
// sum or the like.
func (g *graphView) leavesShape(n *onnx.Node, v *onnx.Value, parts []*routing) bool {
	for _, p := range parts {
		if g.facts.SameShape(v, p.ids) {
			return !g.facts.SameShape(n.Outputs[0], p.ids) && !strings.HasPrefix(n.OpType, "Reduce") && !n.Is("Concat")
		}
	}
	return false
}

func (g *graphView) likeAny(v *onnx.Value, parts []*routing) bool {
	return slices.ContainsFunc(parts, func(p *routing) bool { return g.likeChosen(v, p) })
}

// likeChosen says whether v has the shape of the chosen ids, or that of a sum over their last axis.
func (g *graphView) likeChosen(v *onnx.Value, r *routing) bool {
	if g.facts.SameShape(v, r.ids) {
		return true
	}
	for w := range worlds {
		a, ok1 := g.facts.Shape(v, w)
		b, ok2 := g.facts.Shape(r.ids, w)
		if !ok1 || !ok2 || len(b) == 0 {
			return false
		}
		rows := b[:len(b)-1]
		if !slices.Equal(a, rows) && !(len(a) == len(b) && a[len(a)-1] == 1 && slices.Equal(a[:len(a)-1], rows)) {
			return false
		}
	}
	return true
}
