package moe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// maxNamed bounds the values that a reason names.
const maxNamed = 4

// begin goes back from y to x: the nearest value with as many elements on all paths to y, except from the choice and
// the base, with at least two products after it.
func (k *regionSeeker) begin(y, base *onnx.Value, hidden int64) (x *onnx.Value, why *reason.Reason) {
	g := k.g
	read, inBodies := 0, 0            // the number of products between y and the base, which may also be x
	open := map[*onnx.Value]int{y: 0} // inputs of visited nodes, with the number of products from them to y
	var several []*onnx.Value
	for p := g.Position(y.Producer); p >= 0; p-- {
		if !k.budget.Spend(lookSteps + len(open)) {
			break
		}
		n := g.Graph.Nodes[p]
		between := -1
		for _, v := range n.Outputs {
			if d, ok := open[v]; ok && v != nil {
				between = max(between, d)
				delete(open, v)
			}
		}
		if between < 0 {
			continue
		}
		if n.IsProduct() {
			between++
		}
		inside := productsIn(g, n)
		if between = max(between, inside); between > maxBetween {
			break
		}
		for _, v := range g.Operands(n) {
			switch {
			case k.isChoice(v) || !g.IsData(v):
			case v != base:
				open[v] = max(open[v], between)
			case inside > 0:
				inBodies = max(inBodies, between)
			default:
				read = max(read, between)
			}
		}
		if len(open) == 0 {
			if max(read, inBodies) >= expertProducts {
				return base, nil
			}
			return nil, reason.New(reason.NoTokens, k.r.TopK, "the result does not depend on the tokens")
		}
		depths := slices.Sorted(maps.Values(open))
		least, most := depths[0], depths[len(depths)-1]
		if len(open) == 1 && least >= expertProducts && read == 0 {
			for v := range open {
				if k.rows(v) == hidden && k.bits[v] == 0 {
					return v, nil
				}
			}
		}
		if most >= expertProducts && len(open) > 1 && (several == nil || len(open) <= len(several)) {
			several = slices.Collect(maps.Keys(open))
		}
	}
	if len(several) > 1 {
		return nil, reason.New(reason.NoRegion, k.r.TopK, "the experts depend on more than one tensor: %s",
			list(several))
	}
	return nil, reason.New(reason.NoRegion, k.r.TopK,
		"the experts read no tensor with a row for each token")
}

// productsIn counts the products in the bodies of a node that may be on one path through an expert. (A chain of such
// nodes, one for each expert, passes on the sum and not the factors.)
func productsIn(g *match.View, n *onnx.Node) int {
	c := 0
	n.Walk(func(m *onnx.Node) {
		if m != n && m.IsProduct() {
			c++
		}
	})
	return min(c, expertProducts)
}

func list(values []*onnx.Value) string {
	var names []string
	for _, v := range values {
		names = append(names, fmt.Sprintf("%q", v.Name))
	}
	slices.Sort(names)
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	return strings.Join(names, ", ")
}

// extend moves x back and y forward over reshapes, and y over a cast, so that they have the same type and, if possible,
// the same shape. A sum over an axis of size 1 is also a reshape.
func (k *regionSeeker) extend(reg *Region) {
	facts := k.g.Facts
	typed := func(v *onnx.Value) bool { return facts.DataType(v) == facts.DataType(reg.X()) }
	onto := reg.Base() == reg.X() // the base is the tokens
	xs := []*onnx.Value{reg.X()}  // the earliest first
	for x, n := reg.X(), reg.X().Producer; n != nil && (onto || x != reg.Base()); n = x.Producer {
		x = k.g.HandsOn(n, x)
		if x == nil || k.rows(x) != reg.Hidden || !typed(x) || n.Is("Transpose") {
			break
		}
		xs = append([]*onnx.Value{x}, xs...)
	}
	best := reg.Result
	// The sum is added to a base in the base's type.
	for v := reg.Result; v != nil; v = k.next(v, reg.Base() == nil && !typed(v)) {
		if !typed(v) {
			continue
		}
		if !typed(best) {
			best = v
		}
		if i := slices.IndexFunc(xs, func(x *onnx.Value) bool { return facts.SameShape(x, v) }); i >= 0 {
			if reg.Operands[0], best = xs[i], v; !k.hasUnit(v) {
				break // a product with a row of weights leaves an axis of size 1, which is removed later
			}
		}
	}
	reg.Result = best
	if i := slices.IndexFunc(xs, func(x *onnx.Value) bool { return !k.hasUnit(x) }); i >= 0 && k.hasUnit(reg.X()) &&
		!k.hasUnit(best) {
		reg.Operands[0] = xs[i]
	}
	if onto {
		reg.Operands[1] = reg.X()
	}
}

// hasUnit reports whether an axis of v other than the last always has size 1.
func (k *regionSeeker) hasUnit(v *onnx.Value) bool {
	rank, _ := k.g.Facts.Rank(v)
	for axis := range max(rank-1, 0) {
		if d, ok := k.g.Facts.Dim(v, axis); ok && d == 1 {
			return true
		}
	}
	return false
}

// next returns the result of v's only reader if it reshapes, or casts where allowed, and keeps the rows; otherwise nil.
func (k *regionSeeker) next(v *onnx.Value, cast bool) *onnx.Value {
	if len(v.Uses()) != 1 || v.IsOutput() {
		return nil
	}
	n := v.Uses()[0].Node
	reshapes := match.OpKind(n) == "Reshape" || n.Is("ReduceSum") || n.Is("ReduceMean")
	if n.Graph != k.g.Graph || !reshapes && !(cast && n.Is("Cast")) || k.rows(n.OutputValue(0)) != k.rows(v) {
		return nil
	}
	return n.OutputValue(0)
}

// fill collects the nodes that compute the result from the operands and the choice, in the graph's order, including
// those that compute numbers from shapes.
func (k *regionSeeker) fill(reg *Region) {
	inside := map[*onnx.Node]bool{}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		n := match.Producer(v)
		if v == reg.X() || v == reg.Base() || n == nil || n.Graph != k.g.Graph || inside[n] || k.isChoice(v) ||
			v.Constant() != nil || !k.budget.Spend(lookSteps) {
			return
		}
		inside[n] = true
		reg.Nodes = append(reg.Nodes, n)
		data := k.g.IsData(v)
		for _, in := range k.g.Operands(n) {
			if data || !k.g.IsData(in) { // a Shape belongs to the region, its input need not
				visit(in)
			}
		}
	}
	visit(reg.Result)
	slices.SortFunc(reg.Nodes, func(a, b *onnx.Node) int { return cmp.Compare(k.g.Position(a), k.g.Position(b)) })
}
