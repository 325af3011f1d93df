package router

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// selects reports whether the choice selects experts: its indices, or values computed from them, pick from constants
// with a block for each expert or from a tensor with an index for each expert, or are compared with expert numbers.
func selects(g *match.View, r *Routing) bool {
	numbers := map[int64]bool{} // numbers that are compared with
	further := func(v *onnx.Value) (list []*onnx.Value) {
		for _, u := range v.Uses() {
			if !r.budget.Spend(1) {
				return nil
			}
			if n := u.Node; !n.IsProduct() && !n.Is("Shape") && len(n.Subgraphs()) == 0 &&
				!(n.Is("TopK") && g.Facts.DataType(n.Input(0)).IsFloat()) {
				list = append(list, n.Outputs...)
			}
		}
		return list
	}
	looked := 0
	for v := range onnx.Reach(further, r.IDs) {
		if slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return selector(g, u.Node, u.Index, r, numbers) }) {
			return true
		}
		if looked++; looked == MaxRouter || !r.budget.Spend(lookSteps) {
			break
		}
	}
	return false
}

// selector reports whether a node selects among the experts of a choice; its input at is computed from the indices.
func selector(g *match.View, n *onnx.Node, at int, r *Routing, numbers map[int64]bool) bool {
	if !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "Gather", "GatherElements":
		return at == 1 && (hasBlocks(g, n.Input(0), n.AttrInt("axis", 0), r) || picksMatrices(g, n, r))
	case "GatherND":
		return at == 1 && hasBlocks(g, n.Input(0), n.AttrInt("batch_dims", 0), r)
	case "OneHot": // some have one more, for experts elsewhere
		depth, _, ok := g.Scalar(n.Input(1))
		return at == 0 && ok && (depth == float64(r.Experts) || depth == float64(r.Experts)+1)
	case "ScatterElements", "Scatter":
		size, ok := g.Facts.Dim(n.Input(0), int(n.AttrInt("axis", 0)))
		return at == 1 && ok && size == r.Experts
	case "ScatterND":
		size, ok := g.Facts.Dim(n.Input(0), -1)
		return at == 1 && ok && size == r.Experts
	case "Split": // of rows sorted by expert
		return at == 0 && n.AttrInt("axis", 0) == 0 && int64(len(n.Outputs)) == r.Experts
	case "Equal":
		if n.Graph != g.Graph { // in a loop over the experts, or in a branch
			return true
		}
		list, ok := g.Ints(n.Input(1 - at))
		if !ok {
			return false
		}
		if len(list) == 1 && list[0] >= 0 && list[0] < r.Experts {
			numbers[list[0]] = true
		}
		return int64(len(list)) == r.Experts || len(numbers) > 1
	}
	return false
}

// hasBlocks reports whether v has a block for each expert along an axis before the last: a weight, or outputs of all
// experts. There may be fewer weights than choices: some choices are not experts.
func hasBlocks(g *match.View, v *onnx.Value, axis int64, r *Routing) bool {
	size, ok := g.Facts.Dim(v, int(axis))
	rank, _ := g.Facts.Rank(v)
	if axis < 0 {
		axis += int64(rank)
	}
	return ok && rank > 2 && axis < int64(rank)-1 && (size == r.Experts ||
		size > 1 && size < r.Experts && g.FromConstant(v))
}

// leading returns the first of k numbers along the last axis, and their count, if the others are not read: some graphs
// sort all experts and take the first.
func leading(g *match.View, v *onnx.Value, k int64) (first *onnx.Value, n int64) {
	w := v
	for range match.MaxDetour {
		u, ok := soleUse(w)
		if w.IsOutput() || !ok {
			break
		}
		out := u.Node.OutputValue(0)
		if u.Index == 0 && takesLeading(g, u.Node) {
			if size, ok := g.Facts.Dim(out, -1); ok && size > 0 {
				return out, size
			}
		}
		if !numbers(g, u) {
			break
		}
		w = out
	}
	return v, k
}

// numbers reports whether a node passes on the indices of a sort, perhaps reversed, or uses them to pick from 0, 1, 2,
// ... along the last axis, as a sort of pairs does.
func numbers(g *match.View, u onnx.Use) bool {
	n := u.Node
	t, ok := g.Facts.Known(n.Input(0), 0)
	switch {
	case n.Graph != g.Graph || !onnx.IsStandardDomain(n.Domain):
		return false
	case n.Is("Identity"), n.Is("Cast"):
		return true
	case n.Is("Slice"), n.Is("Gather"):
		return u.Index == 0 && g.Facts.SameShape(n.Outputs[0], n.Input(0))
	case !n.Is("GatherElements") || u.Index != 1 || !ok || g.Facts.Loose(n.Input(0)) || t.I == nil || t.Rank() == 0:
		return false
	}
	size := t.Shape[t.Rank()-1]
	for i, x := range t.I {
		if x != int64(i%size) {
			return false
		}
	}
	axis := n.AttrInt("axis", 0)
	return axis == -1 || axis == int64(t.Rank())-1
}

// takesLeading reports whether only the first numbers along the last axis of a node's input are used.
func takesLeading(g *match.View, n *onnx.Node) bool {
	rank, ok := g.Facts.Rank(n.Input(0))
	last := func(axis int64) bool { return ok && (axis == -1 || axis == int64(rank)-1) }
	switch {
	case n.Graph != g.Graph:
	case n.Is("Slice"):
		starts, axes, steps, ok := g.SliceOf(n)
		for i, axis := range axes { // all of the other axes
			ok = ok && starts[i] == 0 && steps[i] == 1 && (last(axis) || sameSize(g, n, int(axis)))
		}
		return ok && slices.ContainsFunc(axes, last)
	case n.Is("Split"):
		return last(n.AttrInt("axis", 0)) && !slices.ContainsFunc(n.Outputs[1:], func(v *onnx.Value) bool {
			return v != nil && (v.IsOutput() || len(v.Uses()) > 0)
		})
	}
	return false
}

// sameSize reports whether the first input and output of a node have the same size along an axis.
func sameSize(g *match.View, n *onnx.Node, axis int) bool {
	return g.Facts.SameDim(n.Input(0), axis, n.Outputs[0], axis)
}

// picksMatrices reports whether a Gather takes rows of a table with one row for each expert, and a Reshape turns each
// into a matrix.
func picksMatrices(g *match.View, n *onnx.Node, r *Routing) bool {
	size, ok := g.Facts.Dim(n.Input(0), 0)
	table, _ := g.Facts.Rank(n.Input(0))
	out := n.OutputValue(0)
	rank, ranked := g.Facts.Rank(out)
	row, known := g.Facts.Dim(out, -1)
	if !n.Is("Gather") || !ok || size != r.Experts || table != 2 || n.AttrInt("axis", 0) != 0 || !ranked || !known ||
		!g.FromConstant(n.Input(0)) {
		return false
	}
	return slices.ContainsFunc(out.Uses(), func(u onnx.Use) bool {
		made := u.Node.OutputValue(0)
		m, ok := g.Facts.Rank(made)
		out, ok1 := g.Facts.Dim(made, -2)
		in, ok2 := g.Facts.Dim(made, -1)
		return u.Node.Is("Reshape") && u.Index == 0 && ok && m >= max(rank, 3) && ok1 && ok2 && out*in == row &&
			in < row
	})
}

// findChosen follows the values computed only for the chosen experts: the values of the choice, gathered scores, their
// activations, sums and quotients.
func findChosen(g *match.View, r *Routing) {
	parts := append([]*Routing{r}, r.joined...)
	r.ByID = onnx.SetOf(r.forward(nil, r.IDs))
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
		if p.TopK.Is("TopK") {
			add(p.TopK.OutputValue(0))
		}
	}
	// maps a value to those that repeat it, perhaps by way of other shapes
	again := map[*onnx.Value][]*onnx.Value{}
	for v := range r.cone { // in any order: r.chosen is sorted below
		if v.Output == 0 && v != r.Logits && gatheredBy(g, v.Producer, r) != nil && likeAny(g, v, parts) {
			add(v)
		}
		if w := g.Resolve(v); w != v {
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
			if out := u.Node.OutputValue(0); r.cone[out] && (len(u.Node.Outputs) == 1 || takesLeading(g, u.Node)) &&
				g.Facts.DataType(out).IsFloat() && likeAny(g, out, parts) &&
				// picked values may come in another order
				!leavesShape(g, u.Node, v, parts) && !(match.IsPick(u.Node) && u.Index == 0) {
				add(out)
			}
		}
	}
	slices.SortFunc(r.chosen, func(a, b *onnx.Value) int { return g.Position(a.Producer) - g.Position(b.Producer) })
	if r.Weights = lastOnEveryWay(g, r, chosen); r.Weights != nil {
		r.Weights = withOthers(g, r, chosen)
	}
}

// withOthers returns the weights after they are normalized together with those of experts that every token goes to and
// split off again; otherwise Weights.
func withOthers(g *match.View, r *Routing, chosen map[*onnx.Value]bool) *onnx.Value {
	var list []*onnx.Value
	for v := range r.forward(nil, r.Weights) {
		n := v.Producer
		if !chosen[v] && takesLeading(g, n) && oneEach(g, v, r) && hasMore(g, n.Input(0), r.K) &&
			!hasExperts(g, n.Input(0), r) && leavesCone(v, r, nil) {
			list = append(list, v)
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return r.Weights
}

// lastOnEveryWay returns the last chosen value, in the shape of the ids, on every path to the chosen values that the
// experts read, or nil. Values that only the logits determine, such as a loss, count only if the experts read no
// others.
func lastOnEveryWay(g *match.View, r *Routing, chosen map[*onnx.Value]bool) *onnx.Value {
	open := map[*onnx.Value]bool{} // exits, and inputs of exits visited so far
	for _, v := range r.chosen {
		if leavesCone(v, r, chosen) {
			open[v] = true
		}
	}
	if len(open) == 0 {
		for _, v := range r.chosen {
			if v.IsOutput() {
				open[v] = true
			}
		}
	}
	inputs := func(v *onnx.Value) []*onnx.Value {
		list := slices.DeleteFunc(slices.Clone(v.Producer.Inputs), func(in *onnx.Value) bool { return !chosen[in] })
		if w := g.Resolve(v); len(list) == 0 && chosen[w] && w != v {
			return []*onnx.Value{w}
		}
		return list
	}
	for i := len(r.chosen) - 1; i >= 0; i-- { // backwards: the readers of a value come first
		v := r.chosen[i]
		if !open[v] {
			continue
		}
		if len(open) == 1 && oneEach(g, v, r) {
			return v
		}
		before := inputs(v)
		if len(before) == 0 || !r.budget.Spend(lookSteps) { // a path that bypasses all earlier values
			return nil
		}
		delete(open, v)
		for _, in := range before {
			open[in] = true
		}
	}
	return nil
}

// gatheredBy returns the scores of all experts that a node takes the chosen ones from; nil for other nodes.
func gatheredBy(g *match.View, n *onnx.Node, r *Routing) *onnx.Value {
	all := func(v *onnx.Value) bool {
		if v == nil || !r.cone[v] || !hasExperts(g, v, r) {
			return false
		}
		a, ok1 := g.Facts.Shape(v, 0)
		b, ok2 := g.Facts.Shape(r.Logits, 0)
		// not a number for each of as many tokens
		return !ok1 || !ok2 || match.Elements(a[:len(a)-1]) == match.Elements(b[:len(b)-1])
	}
	switch {
	case n == nil || !onnx.IsStandardDomain(n.Domain):
	case match.IsPick(n) && all(n.Input(0)) && r.cone[n.Input(1)]:
		return n.Input(0)
	case n.Is("ReduceMax") && r.TopK.Is("ArgMax") && all(n.Input(0)) && !r.ByID[n.Input(0)] && g.ReducesLastAxis(n) &&
		!onnx.SetOf(r.forward(nil, n.Outputs[0]))[r.TopK.Input(0)]: // the greatest is chosen
		return n.Input(0)
	case (n.Is("ReduceSum") || n.Is("ReduceMax")) && r.K == 1 && g.ReducesLastAxis(n): // the others are masked
		m := match.Producer(g.SkipCasts(n.Input(0)))
		if m.Is("Mul") && len(m.Inputs) == 2 {
			for i, v := range m.Inputs {
				if all(v) && !r.ByID[v] && r.ByID[m.Inputs[1-i]] {
					return v
				}
			}
		}
	}
	return nil
}

// leavesShape reports whether the node turns v, which has a number for each chosen expert, into another shape, and is
// not a reduction or Concat.
func leavesShape(g *match.View, n *onnx.Node, v *onnx.Value, parts []*Routing) bool {
	for _, p := range parts {
		if oneEach(g, v, p) {
			return !oneEach(g, n.Outputs[0], p) && !strings.HasPrefix(n.OpType, "Reduce") && !n.Is("Concat")
		}
	}
	return false
}

func likeAny(g *match.View, v *onnx.Value, parts []*Routing) bool {
	return slices.ContainsFunc(parts, func(p *Routing) bool { return likeChosen(g, v, p) })
}

// oneEach reports whether v has a number for each of the chosen ids, in their shape. If an ArgMax drops its axis, v may
// keep it.
func oneEach(g *match.View, v *onnx.Value, r *Routing) bool {
	if g.Facts.SameShape(v, r.IDs) || r.joined != nil || !r.TopK.Is("ArgMax") || r.TopK.AttrInt("keepdims", 1) == 1 {
		return g.Facts.SameShape(v, r.IDs)
	}
	d, ok := g.Facts.Dim(v, -1)
	return ok && d == 1 && g.SameRows(match.Block{Value: v, Axes: 1}, match.Block{Value: r.IDs})
}

// likeChosen reports whether v has the shape of the chosen ids, of the longer list that they begin, or of a sum over
// their last axis.
func likeChosen(g *match.View, v *onnx.Value, r *Routing) bool {
	if oneEach(g, v, r) || r.TopK.Is("TopK") && g.Facts.SameShape(v, r.TopK.OutputValue(1)) {
		return true
	}
	rows := match.Block{Value: r.IDs, Axes: 1}
	d, ok := g.Facts.Dim(v, -1)
	return g.SameRows(match.Block{Value: v}, rows) || ok && d == 1 && g.SameRows(match.Block{Value: v, Axes: 1}, rows)
}
