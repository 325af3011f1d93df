package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Routing is the choice that a mixture of experts makes for each token.
type Routing struct {
	// TopK chooses: a TopK over the experts, or an ArgMax that chooses one. If several nodes choose one after the other
	// and their indices are joined, it is the last of them.
	TopK *onnx.Node
	// Experts is the number of experts, K how many of them a token goes to.
	Experts, K int64
	// Logits are the router's products [..., experts], computed by a MatMul, a Gemm or the like, with the bias of a
	// following Add.
	Logits *onnx.Value
	// IDs are the chosen experts as TopK writes them, [..., k], or [...] for an ArgMax that drops its axis.
	IDs *onnx.Value
	// Weights are the factors of the chosen experts in the shape of IDs: the last value of that shape on the path from
	// the values of TopK, or from scores gathered by IDs. It is nil if the experts read no such value, or read Dense.
	Weights *onnx.Value
	// chosen are the values that lead to Weights, in the graph's order: shaped like IDs, or sums over their last axis.
	chosen []*onnx.Value
	// Dense are the gates [..., experts] of all experts, unless they only scatter Weights: scores of all experts under
	// a mask, or values that are activated after scattering. Otherwise it is nil.
	Dense *onnx.Value
	// before are the choices of groups of experts that this choice depends on.
	before []*onnx.Node
	// cone holds the values computed only from logits, constants and shapes.
	cone map[*onnx.Value]bool

	budget *match.Budget
	joined []*Routing           // the choices that this one joins, itself included
	ByID   map[*onnx.Value]bool // the values of the cone that depend on IDs
}

// MaxRouter bounds the nodes between a router's product and its choice, and between the choice and its selections.
const MaxRouter = 512

// knownRoutings holds the routings of a graph and their logits; list is nil until All has run.
type knownRoutings struct {
	list       []*Routing
	logits     map[*onnx.Value]bool
	thresholds []*onnx.Node
	cones      map[*onnx.Value]cone
}

// IsLogits reports whether v is the logits of a router of the graph.
func IsLogits(g *match.View, v *onnx.Value) bool {
	All(g)
	return match.Memo[knownRoutings](g).logits[v]
}

// All finds the routers of the graph, in its order: choices of k experts, by the product of each token with constant
// weights, that select among the experts. Choices of groups of experts are part of a router. Sorts, and choices among
// tokens or words, are not routers.
func All(g *match.View) []*Routing {
	known := match.Memo[knownRoutings](g)
	if known.list != nil {
		return known.list
	}
	list := []*Routing{}
	inner := map[*onnx.Node]bool{} // choices that a later one depends on
	budget := budgetOf(g)
	for _, n := range g.Graph.Nodes {
		r := choice(g, n)
		if r == nil {
			continue
		}
		budget.Begin(n)
		r.budget = budget
		before, ok := beforeChoice(g, r)
		if !ok {
			continue
		}
		r.before = before
		for _, m := range before {
			inner[m] = true
		}
		list = append(list, r)
	}
	list = joinChoices(g, list, inner)
	list = slices.DeleteFunc(list, func(r *Routing) bool {
		budget.Begin(r.TopK)
		if inner[r.TopK] || selects(g, r) {
			return inner[r.TopK]
		}
		if n := threshold(g, r); n != nil {
			known.thresholds = append(known.thresholds, n)
		}
		return true
	})
	list = slices.DeleteFunc(list, func(r *Routing) bool {
		budget.Begin(r.TopK)
		if r.cone = coneOf(g, r.Logits); r.listed() {
			r.cone = coneOf(g, r.Logits, r.IDs)
		}
		findChosen(g, r)
		findDense(g, r)
		return budget.Spent() // an unfinished search proves nothing
	})
	budget.End()
	known.list, known.logits = list, map[*onnx.Value]bool{}
	for _, r := range list {
		known.logits[r.Logits] = true
	}
	return list
}

// choice reads a node that chooses k indices of a last axis of known size; nil for other nodes.
func choice(g *match.View, n *onnx.Node) *Routing {
	var ids *onnx.Value
	axis, k := n.AttrInt("axis", 0), int64(1)
	switch {
	case n.Is("TopK"): // the least of negated numbers is possible too
		list, ok := g.Ints(n.Input(1))
		if !ok || len(list) != 1 {
			return nil
		}
		axis, k, ids = n.AttrInt("axis", -1), list[0], n.OutputValue(1)
	case n.Is("ArgMax") && n.AttrInt("select_last_index", 0) == 0:
		ids = n.OutputValue(0)
	case n.Is("GatherElements") && listsExperts(g, n):
		ids = n.Input(1)
		k, _ = g.Facts.Dim(ids, -1)
	default:
		return nil
	}
	in := n.Input(0)
	rank, ok := g.Facts.Rank(in)
	if !ok || axis != -1 && axis != int64(rank)-1 || !g.Facts.DataType(in).IsFloat() {
		return nil
	}
	experts, ok := g.Facts.Dim(in, -1)
	if !ok || experts < 2 || k < 1 || k > experts || ids == nil {
		return nil
	}
	if n.AttrInt("sorted", 1) == 1 {
		ids, k = leading(g, ids, k)
	}
	return &Routing{TopK: n, IDs: ids, Experts: experts, K: k}
}

// beforeChoice goes back from the input of the choice to the product that it comes from, and lists the choices on the
// way. ok is false if no product with constant weights has a number for each expert and token.
func beforeChoice(g *match.View, r *Routing) (choices []*onnx.Node, ok bool) {
	var leads map[*onnx.Value]*onnx.Value // maps an input to the first value reached from it
	var passed []*onnx.Value              // values whose inputs were reached, while leads is nil
	lead := func(v *onnx.Value) {
		for _, in := range v.MadeFrom() {
			if leads[in] == nil {
				leads[in] = v
			}
		}
	}
	var product *onnx.Value
	narrowed := false // to some of more numbers per token
	ends := func(v *onnx.Value) bool {
		n := v.Producer
		return n == nil || v.Graph != g.Graph || v.Constant() != nil || n.Is("Shape") || n.Is("Size")
	}
	looked := 0
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if ends(v) || projects(g, v.Producer) {
			return nil
		}
		if leads != nil {
			lead(v)
		} else {
			passed = append(passed, v)
		}
		return v.MadeFrom()
	}, r.TopK.Input(0)) {
		n := v.Producer
		if looked++; looked > MaxRouter {
			break
		}
		if !r.budget.Spend(lookSteps * (1 + len(v.MadeFrom()))) {
			return nil, false
		}
		switch {
		case ends(v):
		case projects(g, n):
			if leads == nil { // most paths meet no product and need no map
				leads = map[*onnx.Value]*onnx.Value{}
				for _, v := range passed {
					lead(v)
				}
			}
			v := turned(g, scaled(g, v, leads), leads, r)
			if product == nil && (hasExperts(g, v, r) || narrowed && hasMore(g, v, r.Experts)) &&
				slices.ContainsFunc(n.Inputs, g.FromConstant) {
				product = v
			}
		case n.Is("Slice"), n.Is("Split"):
			narrowed = narrowed || hasExperts(g, v, r) && hasMore(g, n.Input(0), r.Experts)
		case n.Is("Cast") && !g.Facts.DataType(n.Input(0)).IsFloat() && v == g.Resolve(r.TopK.Input(0)):
			return nil, false // a sort of integers
		case (n.Is("TopK") || n.Is("ArgMax")) && !slices.Contains(choices, n):
			choices = append(choices, n)
		}
	}
	if product == nil {
		return nil, false
	}
	r.Logits = withBias(g, product)
	return choices, true
}

// scaled returns the floats that a product of integers represents: the product, cast and multiplied by the scales of
// its operands. leads maps a value to one computed from it. A product of floats is returned unchanged.
func scaled(g *match.View, v *onnx.Value, leads map[*onnx.Value]*onnx.Value) *onnx.Value {
	if v == nil || g.Facts.DataType(v).IsFloat() {
		return v
	}
	for v != nil && !g.Facts.DataType(v).IsFloat() {
		v = leads[v]
	}
	if next := leads[v]; next != nil && next.Producer.Is("Mul") {
		v = next
	}
	return v
}

// turned returns the transposition of a product whose experts are not on the last axis; other products are returned
// unchanged. leads maps a value to one computed from it.
func turned(g *match.View, v *onnx.Value, leads map[*onnx.Value]*onnx.Value, r *Routing) *onnx.Value {
	for w := v; w != nil && g.HandsOn(w.Producer, w) != nil || w == v && w != nil; w = leads[w] {
		if hasExperts(g, w, r) {
			return w
		}
	}
	return v
}

// maxSum bounds the elements of a constant in a product that is a sum.
const maxSum = 1 << 16

// projects reports whether a node is a product and not just a sum: one of other operands than a value and constants
// that each repeat one number.
func projects(g *match.View, n *onnx.Node) bool {
	if !n.Is("MatMul") && !n.Is("Einsum") {
		return n.IsProduct()
	}
	known := match.Memo[projecting](g)
	if *known == nil {
		*known = projecting{}
	}
	is, ok := (*known)[n]
	if !ok {
		is = isProjection(g, n)
		(*known)[n] = is
	}
	return is
}

// projecting is the memo of projects.
type projecting map[*onnx.Node]bool

func isProjection(g *match.View, n *onnx.Node) bool {
	data := 0
	for _, v := range n.Inputs {
		if !g.FromConstant(v) {
			data++
			continue
		}
		for v.Constant() == nil {
			v = v.Producer.Inputs[0]
		}
		t := v.Constant()
		if !t.DataType.IsFloat() || t.Len() < 1 || t.Len() > maxSum {
			return true
		}
		c, err := reference.FromONNX(t)
		if err != nil || slices.ContainsFunc(c.F, func(x float64) bool { return x != c.F[0] || x == 0 }) {
			return true
		}
	}
	return data != 1
}

// joinChoices merges choices that are made one after the other and whose indices a Concat joins.
func joinChoices(g *match.View, list []*Routing, inner map[*onnx.Node]bool) []*Routing {
	byIDs := map[*onnx.Value]*Routing{}
	for _, r := range list {
		byIDs[r.IDs] = r
	}
	for _, r := range list {
		for _, u := range usesOfColumn(g, r.IDs) {
			rank, ok := g.Facts.Rank(u.Node.OutputValue(0))
			axis := u.Node.AttrInt("axis", 0)
			if !ok || u.Index != 0 || !u.Node.Is("Concat") || len(u.Node.Inputs) < 2 ||
				axis != -1 && axis != int64(rank)-1 {
				continue
			}
			whole := Routing{IDs: u.Node.OutputValue(0), budget: r.budget}
			for _, v := range u.Node.Inputs {
				part := byIDs[columnOf(g, v)]
				if part == nil || part.Logits != r.Logits || part.joined != nil {
					whole.joined = nil
					break
				}
				whole.joined = append(whole.joined, part)
				whole.K += part.K
				if whole.TopK == nil || g.Position(whole.TopK) < g.Position(part.TopK) {
					whole.TopK = part.TopK
				}
			}
			if len(whole.joined) != len(u.Node.Inputs) {
				continue
			}
			whole.Experts, whole.Logits = r.Experts, r.Logits
			for _, part := range whole.joined {
				inner[part.TopK] = part.TopK != whole.TopK
				if copied := *part; part.TopK == whole.TopK {
					whole.joined[slices.Index(whole.joined, part)] = &copied
					*part = whole
				}
			}
			break
		}
	}
	return list
}

// columnOf returns v without casts and without an added last axis of size 1; v holds one number for each token.
func columnOf(g *match.View, v *onnx.Value) *onnx.Value {
	v = g.SkipCasts(v)
	n := match.Producer(v)
	if n == nil || match.OpKind(n) != "Reshape" {
		return v
	}
	rank, ok1 := g.Facts.Rank(v)
	before, ok2 := g.Facts.Rank(n.Input(0))
	if d, ok := g.Facts.Dim(v, -1); !ok || d != 1 || !ok1 || !ok2 || before != rank-1 {
		return v
	}
	return g.SkipCasts(n.Input(0))
}

// usesOfColumn lists the uses of v, also with a last axis of size 1 or cast to another type.
func usesOfColumn(g *match.View, v *onnx.Value) (list []onnx.Use) {
	for w := range onnx.Downstream(func(w *onnx.Value) bool { return columnOf(g, w) != v }, v) {
		list = append(list, w.Uses()...)
	}
	return list
}

// hasExperts reports whether v is a tensor of floats with one number per expert along its last axis.
func hasExperts(g *match.View, v *onnx.Value, r *Routing) bool {
	d, ok := g.Facts.Dim(v, -1)
	return ok && d == r.Experts && g.Facts.DataType(v).IsFloat()
}

// hasMore reports whether v has more numbers along its last axis than that, for example for experts that every token
// goes to.
func hasMore(g *match.View, v *onnx.Value, than int64) bool {
	d, ok := g.Facts.Dim(v, -1)
	return ok && d > than && g.Facts.DataType(v).IsFloat()
}

// soleUse returns the only use of a value, ignoring Shape nodes; ok is false if there is not exactly one.
func soleUse(v *onnx.Value) (sole onnx.Use, ok bool) {
	for _, u := range v.Uses() {
		switch {
		case u.Node.Is("Shape"):
		case ok:
			return onnx.Use{}, false
		default:
			sole, ok = u, true
		}
	}
	return sole, ok
}

// withBias returns the sum of a product and a constant, if that is the product's only use; otherwise the product.
func withBias(g *match.View, product *onnx.Value) *onnx.Value {
	u, ok := soleUse(product)
	if !ok || product.IsOutput() {
		return product
	}
	n := u.Node
	// it passes the product on
	if v := n.OutputValue(0); n.Graph == g.Graph && v != nil && g.Resolve(v) == g.Resolve(product) {
		if sum := withBias(g, v); sum != v {
			return sum
		}
		return product
	}
	if n.Is("Add") && n.Graph == g.Graph && len(n.Inputs) == 2 && g.FromConstant(n.Inputs[1-u.Index]) &&
		g.Facts.SameShape(n.Outputs[0], product) {
		return n.Outputs[0]
	}
	return product
}
