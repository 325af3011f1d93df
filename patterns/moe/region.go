package moe

import (
	"cmp"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A Region is the part of a graph in which tokens pass through the experts that a router chose for them, in whatever
// form. It begins at the tokens x and at the router's ids and weights, and ends at y, the sum for each token. It does
// not depend on a list of forms: y is where all paths from the choice meet again, and x is the only value besides the
// choice that y is computed from, except for a base that the experts may be added to. x and the base have as many
// elements as y; leading axes and types may differ.
type Region struct {
	probe.Region
	Routing *router.Routing
	Hidden  int64
	sure    bool // the region was run and is not a mixture of all experts
}

// X returns the tokens [..., hidden].
func (r *Region) X() *onnx.Value { return r.Operands[0] }

// Base returns the value that the sum for each token is added to, nil if the sum begins at zero.
func (r *Region) Base() *onnx.Value { return r.Operands[1] }

const (
	// maxBetween bounds the products with weights on a path from x to y.
	maxBetween = 8
	// maxEnds bounds the values that are tried as y.
	maxEnds = 6
	// expertProducts is the least number of products with weights on the path through an expert.
	expertProducts = 2
)

// Regions finds the region after a routing, or why there is none. If values may be the base, it returns several regions
// with the same y; the last has no base. If behind is given, they end after it.
func Regions(g *match.View, r *router.Routing, behind *onnx.Node) (list []*Region, why *reason.Reason) {
	if r.Weights == nil && r.Dense == nil {
		return nil, reason.New(reason.NoRegion, r.TopK, "the chosen experts have no weights")
	}
	k := &regionSeeker{g: g, r: r, budget: budgetOf(g), bits: map[*onnx.Value]uint8{}, behind: behind}
	if list, why = k.ends(); len(list) == 0 {
		return nil, why
	}
	for _, reg := range list {
		k.extend(reg)
		k.fill(reg)
	}
	return list, nil
}

// regionSeeker looks for the region of one routing.
type regionSeeker struct {
	g      *match.View
	r      *router.Routing
	budget *match.Budget
	behind *onnx.Node            // y must come after it
	bits   map[*onnx.Value]uint8 // for values that depend on the choice: on which part of it
	made   []*onnx.Value         // these values in the graph's order
}

const (
	fromWeights uint8 = 1 << iota
	fromIDs
)

// isChoice reports whether v is one of the values that pass on the choice.
func (k *regionSeeker) isChoice(v *onnx.Value) bool {
	return v == k.r.Weights || v == k.r.IDs || v == k.r.Dense && v != nil
}

// ends finds y and x. y is the first value that has a row for each token, lies on all paths from the choice, and
// depends on the tokens. (Gates of all experts also have a row for each token, and depend only on the choice. If each
// token goes to one expert, so do the values between the products.)
func (k *regionSeeker) ends() (list []*Region, why *reason.Reason) {
	g, r := k.g, k.r
	need := fromWeights | fromIDs
	k.mark(r.IDs, fromIDs)
	if r.Weights != nil {
		k.mark(r.Weights, fromWeights)
	}
	if r.Dense != nil {
		k.mark(r.Dense, fromWeights)
		need = fromWeights
	}
	choosing, tried := k.router(), 0
	for _, n := range g.Graph.Nodes[router.Start(g, r)+1:] {
		if !k.budget.Spend(lookSteps) {
			break
		}
		if choosing[n] {
			// the nodes that compute the weights may also pass on the ids to the experts
			for _, v := range n.Outputs {
				if v == nil || k.isChoice(v) || !g.IsData(v) {
					continue
				}
				if in := g.HandsOn(n, v); in != nil && k.bits[in] == fromIDs {
					k.mark(v, fromIDs)
				}
			}
			continue
		}
		var bits uint8
		for _, v := range g.Operands(n) {
			bits |= k.bits[v]
		}
		if bits == 0 {
			continue
		}
		for _, v := range n.Outputs {
			if v == nil || !g.IsData(v) || k.isChoice(v) {
				continue
			}
			k.mark(v, bits)
			h := k.rows(v)
			if bits&need != need || h == 0 || k.behind != nil && g.Position(n) <= g.Position(k.behind) || !k.joins(v) {
				continue
			}
			var none *reason.Reason
			for _, base := range append(k.bases(v, h), nil) {
				var x *onnx.Value
				if x, none = k.begin(v, base, h); x != nil {
					list = append(list, &Region{Routing: r, Hidden: h,
						Region: probe.Region{Operands: []*onnx.Value{x, base}, Result: v}})
				}
			}
			if len(list) > 0 {
				return list, nil
			}
			if tried++; why == nil || why.Code == reason.NoTokens {
				why = none
			}
			if tried == maxEnds {
				return nil, why
			}
		}
	}
	return nil, cmp.Or(why, reason.New(reason.NoRegion, r.TopK,
		"the values that depend on the choice of experts do not lead to one value with a row for each token"))
}

func (k *regionSeeker) mark(v *onnx.Value, bits uint8) {
	if k.bits[v] == 0 {
		k.made = append(k.made, v)
	}
	k.bits[v] |= bits
}

// router lists the nodes from TopK to the values that pass on the choice.
func (k *regionSeeker) router() map[*onnx.Node]bool {
	first := router.Start(k.g, k.r)
	makers := func(values []*onnx.Value) (nodes []*onnx.Node) {
		for _, v := range values {
			if n := match.Producer(v); n != nil && n.Graph == k.g.Graph && k.g.Position(n) >= first {
				nodes = append(nodes, n)
			}
		}
		return nodes
	}
	before := func(n *onnx.Node) []*onnx.Node { return makers(k.g.Operands(n)) }
	return onnx.SetOf(onnx.Reach(before, makers(k.r.Cut())...))
}

// rows returns the size of the last axis of v if v has one row of that size for each token, in any arrangement;
// otherwise 0.
func (k *regionSeeker) rows(v *onnx.Value) (size int64) {
	g := k.g
	size, ok := g.Facts.Dim(v, -1)
	if !ok || size < 2 || !g.Facts.DataType(v).IsFloat() {
		return 0
	}
	for w := range infer.Worlds {
		s, ok1 := g.Facts.Shape(v, w)
		tokens, ok2 := k.tokens(w)
		if !ok1 || !ok2 || match.Elements(s) != tokens*size {
			return 0
		}
	}
	return size
}

// tokens returns the number of tokens of the choice in a world.
func (k *regionSeeker) tokens(w int) (n int64, ok bool) {
	v, each := k.r.IDs, k.r.K
	if v == nil {
		v, each = k.r.Dense, k.r.Experts
	}
	s, ok := k.g.Facts.Shape(v, w)
	return match.Elements(s) / each, ok
}

// joins reports whether y lies on all paths from the choice, except those that end without meeting a value computed
// from y, such as ids that are an output for statistics. The logits of other routers do not count: they may be an
// output together with this router's.
func (k *regionSeeker) joins(y *onnx.Value) bool {
	g, at := k.g, k.g.Position(y.Producer)
	if !g.IsNeeded(y) {
		return false
	}
	side := map[*onnx.Value]uint8{y: 1} // 1: computed from y, 2: computed from the choice, not through y
	end := -1                           // the last node that reads a value of 2
	beside := func(v *onnx.Value, after int) {
		for _, n := range g.Readers(v) {
			if !k.budget.Spend(lookSteps) {
				return
			}
			if p := g.Position(n); p > after {
				side[v] |= 2
				end = max(end, p)
			}
		}
	}
	for _, v := range k.made {
		if v != y {
			beside(v, at)
		}
	}
	for p := at + 1; p <= end; p++ {
		if !k.budget.Spend(lookSteps) {
			return false
		}
		n := g.Graph.Nodes[p]
		var bits uint8
		for _, v := range g.Operands(n) {
			bits |= side[v]
		}
		if bits == 3 {
			return false
		}
		for _, v := range n.Outputs {
			if v == nil || bits == 0 || !g.IsData(v) || router.IsLogits(g, v) {
				continue
			}
			if side[v] |= bits; bits == 2 {
				beside(v, p)
			}
		}
	}
	return true
}

// eachNode calls f for the nodes of the region and for those of their bodies.
func (r *Region) eachNode(f func(*onnx.Node)) {
	for _, n := range r.Nodes {
		n.Walk(f)
	}
}
