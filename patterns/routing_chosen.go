package patterns

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// selects reports whether experts are selected by the choice: whether its indices, or what is computed from them, pick from constants
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

// selector reports whether the node, whose input at is made from the indices of the choice, selects among its experts.
func (g *graphView) selector(n *onnx.Node, at int, r *routing, numbers map[int64]bool) bool {
	if !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "Gather", "GatherElements":
		return at == 1 && (g.hasBlocks(n.Input(0), n.AttrInt("axis", 0), r) || g.picksMatrices(n, r))
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
	case "Split": // of rows that are sorted by expert
		return at == 0 && n.AttrInt("axis", 0) == 0 && int64(len(n.Outputs)) == r.experts
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

// hasBlocks reports whether v has a block for each expert along an axis, which is not the last: a weight, or outputs of all experts.
// Choices may be among more than there are weights, of which some stand for no expert.
func (g *graphView) hasBlocks(v *onnx.Value, axis int64, r *routing) bool {
	size, ok := g.facts.Dim(v, int(axis))
	rank, _ := g.facts.Rank(v)
	if axis < 0 {
		axis += int64(rank)
	}
	return ok && rank > 2 && axis < int64(rank)-1 && (size == r.experts || size > 1 && size < r.experts && g.fromConstant(v))
}

// leading returns the first of k numbers along the last axis, and how many they are, where no others are read: experts may be sorted,
// and the first ones be taken.
func (g *graphView) leading(v *onnx.Value, k int64) (first *onnx.Value, n int64) {
	for _, u := range v.Uses() {
		switch out := u.Node.OutputValue(0); {
		case u.Node.Is("Shape"):
		case first != nil || u.Index != 0 || v.IsOutput() || !g.takesLeading(u.Node):
			return v, k
		default:
			first = out
		}
	}
	if first == nil {
		return v, k
	}
	if size, ok := g.facts.Dim(first, -1); ok && size > 0 {
		return first, size
	}
	return v, k
}

// takesLeading reports whether all that is used of a node are the first numbers along the last axis of its input.
func (g *graphView) takesLeading(n *onnx.Node) bool {
	rank, ok := g.facts.Rank(n.Input(0))
	last := func(axis int64) bool { return ok && (axis == -1 || axis == int64(rank)-1) }
	switch {
	case n.Graph != g.g:
	case n.Is("Slice"):
		starts, axes, steps, ok := g.sliceOf(n)
		return ok && len(starts) == 1 && starts[0] == 0 && steps[0] == 1 && last(axes[0])
	case n.Is("Split"):
		return last(n.AttrInt("axis", 0)) && !slices.ContainsFunc(n.Outputs[1:], func(v *onnx.Value) bool { return v != nil && (v.IsOutput() || len(v.Uses()) > 0) })
	}
	return false
}

// picksMatrices reports whether a Gather takes rows of a table with one for each expert, and a Reshape makes a matrix of each.
func (g *graphView) picksMatrices(n *onnx.Node, r *routing) bool {
	size, ok := g.facts.Dim(n.Input(0), 0)
	table, _ := g.facts.Rank(n.Input(0))
	out := n.OutputValue(0)
	rank, ranked := g.facts.Rank(out)
	row, known := g.facts.Dim(out, -1)
	if !n.Is("Gather") || !ok || size != r.experts || table != 2 || n.AttrInt("axis", 0) != 0 || !ranked || !known || !g.fromConstant(n.Input(0)) {
		return false
	}
	return slices.ContainsFunc(out.Uses(), func(u onnx.Use) bool {
		made := u.Node.OutputValue(0)
		m, ok := g.facts.Rank(made)
		out, ok1 := g.facts.Dim(made, -2)
		in, ok2 := g.facts.Dim(made, -1)
		return u.Node.Is("Reshape") && u.Index == 0 && ok && m >= max(rank, 3) && ok1 && ok2 && out*in == row && in < row
	})
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
	again := map[*onnx.Value][]*onnx.Value{} // from a value to those that hand it on, perhaps on a way over other shapes
	for v := range r.cone {                  // in any order: r.chosen is sorted below
		if v.Output == 0 && v != r.logits && g.gathered(v.Producer, r) != nil && g.likeAny(v, parts) {
			add(v)
		}
		if w := g.resolve(v); w != v {
			again[w] = append(again[w], v)
		}
	}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, w := range again[v] {
			add(w)
		}
		for _, u := range v.Uses() {
			if out := u.Node.OutputValue(0); r.cone[out] && (len(u.Node.Outputs) == 1 || g.takesLeading(u.Node)) && g.facts.DataType(out).IsFloat() && g.likeAny(out, parts) &&
				!g.leavesShape(u.Node, v, parts) && !(isPick(u.Node) && u.Index == 0) { // picked, they may come in another order
				add(out)
			}
		}
	}
	slices.SortFunc(r.chosen, func(a, b *onnx.Value) int { return g.position(a.Producer) - g.position(b.Producer) })
	if r.weights = g.lastOnEveryWay(r, chosen); r.weights != nil {
		r.weights = g.withOthers(r, chosen)
	}
}

// withOthers returns what becomes of the weights where they are normalised together with those of experts that every token goes to, and
// taken out again; else the weights.
func (g *graphView) withOthers(r *routing, chosen map[*onnx.Value]bool) *onnx.Value {
	var list []*onnx.Value
	for v := range g.forward([]*onnx.Value{r.weights}, r, nil) { // in any order: only one is of use
		n := v.Producer
		if !chosen[v] && g.takesLeading(n) && g.oneEach(v, r) && g.hasMore(n.Input(0), r.k) && !g.hasExperts(n.Input(0), r) && g.leavesCone(v, r, nil) {
			list = append(list, v)
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return r.weights
}

// lastOnEveryWay returns the last chosen value in the shape of the ids that all of the chosen values which the experts read come
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
		list := slices.DeleteFunc(slices.Clone(v.Producer.Inputs), func(in *onnx.Value) bool { return !chosen[in] })
		if w := g.resolve(v); len(list) == 0 && chosen[w] && w != v {
			return []*onnx.Value{w}
		}
		return list
	}
	for i := len(r.chosen) - 1; i >= 0 && len(exits) > 0; i-- {
		last := r.chosen[i]
		if !g.oneEach(last, r) {
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

// gathered returns the scores of all experts that a node takes those of the chosen ones out of; nil for other nodes.
func (g *graphView) gathered(n *onnx.Node, r *routing) *onnx.Value {
	all := func(v *onnx.Value) bool {
		if v == nil || !r.cone[v] || !g.hasExperts(v, r) {
			return false
		}
		a, ok1 := g.facts.Shape(v, 0)
		b, ok2 := g.facts.Shape(r.logits, 0)
		return !ok1 || !ok2 || elements(a[:len(a)-1]) == elements(b[:len(b)-1]) // not a number for each token, of which there are as many
	}
	switch {
	case n == nil || !onnx.IsStandardDomain(n.Domain):
	case isPick(n) && all(n.Input(0)) && r.cone[n.Input(1)]:
		return n.Input(0)
	case n.Is("ReduceMax") && r.topK.Is("ArgMax") && all(n.Input(0)) && !r.byID[n.Input(0)] && g.reducesLastAxis(n) &&
		!g.forward([]*onnx.Value{n.Outputs[0]}, r, nil)[r.topK.Input(0)]: // the greatest is the chosen one
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

// leavesShape reports whether the node makes of v, which has a number for each chosen expert, a tensor that has none for each, and is no
// sum or the like.
func (g *graphView) leavesShape(n *onnx.Node, v *onnx.Value, parts []*routing) bool {
	for _, p := range parts {
		if g.oneEach(v, p) {
			return !g.oneEach(n.Outputs[0], p) && !strings.HasPrefix(n.OpType, "Reduce") && !n.Is("Concat")
		}
	}
	return false
}

func (g *graphView) likeAny(v *onnx.Value, parts []*routing) bool {
	return slices.ContainsFunc(parts, func(p *routing) bool { return g.likeChosen(v, p) })
}

// oneEach reports whether v has a number for each of the chosen ids, in their shape; where an ArgMax leaves its axis out, v may have it.
func (g *graphView) oneEach(v *onnx.Value, r *routing) bool {
	if g.facts.SameShape(v, r.ids) || r.joined != nil || !r.topK.Is("ArgMax") || r.topK.AttrInt("keepdims", 1) == 1 {
		return g.facts.SameShape(v, r.ids)
	}
	for w := range worlds {
		a, ok1 := g.facts.Shape(v, w)
		b, ok2 := g.facts.Shape(r.ids, w)
		if !ok1 || !ok2 || len(a) != len(b)+1 || a[len(b)] != 1 || !slices.Equal(a[:len(b)], b) {
			return false
		}
	}
	return true
}

// likeChosen reports whether v has the shape of the chosen ids, or of those that they are the first of, or that of a sum over their last axis.
func (g *graphView) likeChosen(v *onnx.Value, r *routing) bool {
	if g.oneEach(v, r) || r.topK.Is("TopK") && g.facts.SameShape(v, r.topK.OutputValue(1)) {
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
