package attention

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// region is the two products of a block and the nodes between them. Its operand is the scores; its result is the
// weights of the keys, which the second product reads. Its sides are masks, sinks and numbers.
type region struct {
	probe.Region
	anchor  *onnx.Node
	product *onnx.Node // of queries and keys
	sum     *onnx.Node // the second product
	operand int        // the input of the second product with the values
	op      *wholeOp   // set if one node is the whole block
	joins   []join     // after the second product
	detours []detour   // from the scores to the softmax

	made   map[*onnx.Node]bool // visited nodes
	none   map[*onnx.Node]bool // additions that no product leads to
	others bool                // as for backward
}

// scores returns the result of the first product. It is nil if one node is the whole region.
func (r *region) scores() *onnx.Value {
	if len(r.Operands) == 0 {
		return nil
	}
	return r.Operands[0]
}

func (r *region) weights() *onnx.Value { return r.Result }

// join is a node after the second product that multiplies or divides rows by a value computed from their scores, such
// as the sum of their exponentials.
type join struct {
	node   *onnx.Node
	rows   *onnx.Value
	factor *onnx.Value
}

// joinOf returns the join of a node, nil if the node is not a join.
func (r *region) joinOf(n *onnx.Node) *join {
	for i := range r.joins {
		if r.joins[i].node == n {
			return &r.joins[i]
		}
	}
	return nil
}

// maxRegion bounds the nodes between the products.
const maxRegion = 64

// isAnchor reports whether the node may be, or contain, the exponential of a softmax.
func isAnchor(n *onnx.Node) bool { return n.Is("Softmax") || n.Is("Exp") || wholeOpOf(n) != nil }

// isProduct reports whether the node may multiply queries, keys or values.
func isProduct(n *onnx.Node) bool {
	return (n.Is("MatMul") || n.Is("Einsum")) && len(n.Inputs) == 2 && n.Inputs[0] != nil && n.Inputs[1] != nil &&
		result(n) != nil
}

// result returns the only output of a node, or nil.
func result(n *onnx.Node) *onnx.Value {
	if len(n.Outputs) != 1 {
		return nil
	}
	return n.Outputs[0]
}

// dense holds the values computed from a product with weights. Values computed only from shapes or masks are not dense.
type dense map[*onnx.Value]bool

func denseValues(g *match.View) dense {
	d := match.Memo[dense](g)
	if *d != nil {
		return *d
	}
	*d = dense{}
	for _, n := range g.Graph.Nodes {
		if n.Is("Shape") || n.Is("Size") {
			continue
		}
		is := n.IsProduct() && slices.ContainsFunc(n.Inputs, g.IsData) ||
			slices.ContainsFunc(g.Operands(n), func(v *onnx.Value) bool { return (*d)[v] })
		for _, v := range n.Outputs {
			if is && v != nil {
				(*d)[v] = true
			}
		}
	}
	return *d
}

// readRegions finds the products around an anchor. The list is empty without products, and has several regions
// if the weights of one softmax are multiplied with several values. The reason applies to all of them.
func readRegions(g *match.View, anchor *onnx.Node) ([]*region, *reason.Reason) {
	d := denseValues(g)
	if op := wholeOpOf(anchor); op != nil {
		return op.regions(anchor)
	}
	if !d[anchor.Inputs[0]] || !productsAhead(g)[anchor.Outputs[0]] {
		return nil, nil
	}
	sums := forward(g, anchor.Outputs[0])
	var list []*region
	for _, sum := range sums {
		r := &region{anchor: anchor, sum: sum.node, operand: sum.operand}
		r.Result = sum.node.Inputs[1-sum.operand]
		if !r.backward(g, d, false) && !r.backward(g, d, true) {
			return nil, nil
		}
		r.findJoins(g, d)
		r.findDetours(g)
		a, b := r.product.Inputs[0], r.product.Inputs[1] // learned queries are constants, as those of a pooling head
		if !g.IsData(a) && !g.IsData(b) || !g.IsData(r.sum.Inputs[r.operand]) {
			return nil, nil
		}
		list = append(list, r)
	}
	for _, r := range list {
		if why := r.closed(g, list); why != nil {
			return list, why
		}
	}
	return list, nil
}

// ahead holds the values from which a product is reached within maxRegion nodes.
type ahead map[*onnx.Value]bool

// productsAhead visits each node once. Without it, forward would visit maxRegion nodes after each anchor of a graph
// without products.
func productsAhead(g *match.View) ahead {
	a := match.Memo[ahead](g)
	if *a != nil {
		return *a
	}
	*a = ahead{}
	away := map[*onnx.Value]int{} // distance in nodes to the nearest product
	for _, n := range slices.Backward(g.Graph.Nodes) {
		least := 0
		if !isProduct(n) {
			least = maxRegion + 1
			for _, out := range n.Outputs {
				if k, ok := away[out]; ok && out != nil {
					least = min(least, k)
				}
			}
		}
		if least > maxRegion {
			continue
		}
		for _, v := range g.Operands(n) {
			if k, ok := away[v]; v != nil && (!ok || least+1 < k) {
				away[v], (*a)[v] = least+1, true
			}
		}
	}
	return *a
}

// secondProduct is a product with the weights, and the index of its input that holds the values.
type secondProduct struct {
	node    *onnx.Node
	operand int
}

// forward finds the products that the anchor's result leads to. It does not continue past them.
func forward(g *match.View, from *onnx.Value) (sums []secondProduct) {
	seen, behind := map[*onnx.Value]bool{from: true}, map[*onnx.Value]bool{}
	visited := map[*onnx.Node]bool{}
	var products []*onnx.Node
	reads := func(n *onnx.Node, set map[*onnx.Value]bool) bool {
		return slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return set[v] })
	}
	next := readersOf(g, from)
	for len(next) > 0 {
		i := 0 // the first in graph order: its inputs are known
		for k, n := range next {
			if g.Position(n) < g.Position(next[i]) {
				i = k
			}
		}
		n := next[i]
		next = slices.Delete(next, i, i+1)
		switch {
		case visited[n] || n.Is("Shape") || reads(n, behind):
		case isProduct(n):
			if !slices.Contains(products, n) {
				products = append(products, n)
			}
			v := n.Outputs[0]
			for range maxChain {
				behind[v] = true
				reader := soleReader(g, v)
				if reader == nil || v.IsOutput() || result(reader) == nil {
					break
				}
				v = reader.Outputs[0]
			}
		case len(seen) > maxRegion || n.IsProduct() || len(n.Subgraphs()) > 0 || !onnx.IsStandardDomain(n.Domain):
			return nil
		default:
			for _, out := range n.Outputs {
				if out != nil {
					seen[out] = true
					next = append(next, readersOf(g, out)...)
				}
			}
		}
		visited[n] = true
	}
	for _, n := range products {
		if seen[n.Inputs[0]] == seen[n.Inputs[1]] {
			return nil
		}
		values := 0
		if seen[n.Inputs[0]] {
			values = 1
		}
		sums = append(sums, secondProduct{n, values})
	}
	return sums
}

// readersOf returns the nodes of the graph that read a value.
func readersOf(g *match.View, v *onnx.Value) []*onnx.Node {
	return slices.DeleteFunc(slices.Clone(g.Readers(v)), func(n *onnx.Node) bool { return n.Graph != g.Graph })
}

// backward finds the product that the weights are computed from, and collects the nodes between. With others, other
// terms may be added to the product, as in relative-position attention: the first term is then the one that the others
// are added to.
func (r *region) backward(g *match.View, d dense, others bool) bool {
	r.product, r.Operands, r.Nodes, r.Sides = nil, nil, nil, nil
	r.made, r.none, r.others = map[*onnx.Node]bool{}, map[*onnx.Node]bool{}, others
	return r.visit(d, r.weights()) && r.product != nil && r.made[r.anchor]
}

// visit collects the nodes that compute a value, back to the first product.
func (r *region) visit(d dense, v *onnx.Value) bool {
	side := func(v *onnx.Value) bool {
		if !slices.Contains(r.Sides, v) {
			r.Sides = append(r.Sides, v)
		}
		return true
	}
	n := v.Producer
	switch {
	case !d[v]:
		return side(v)
	case n == nil || len(r.made) > maxRegion || len(n.Subgraphs()) > 0 || !onnx.IsStandardDomain(n.Domain):
		return false
	case isProduct(n):
		if r.product != nil && r.product != n {
			return false
		}
		r.product, r.Operands = n, []*onnx.Value{v}
		return true
	case n.IsProduct():
		return false
	case r.made[n]:
		return true
	}
	r.made[n] = true
	if r.others && r.product == nil && n.Is("Add") && d[n.Inputs[0]] && d[n.Inputs[1]] {
		if r.none[n] { // both inputs have been tried
			return false
		}
		nodes, sides := slices.Clone(r.Nodes), slices.Clone(r.Sides)
		was := maps.Clone(r.made)
		for i, in := range n.Inputs {
			if r.visit(d, in) && r.product != nil {
				r.Nodes = append(r.Nodes, n)
				return side(n.Inputs[1-i])
			}
			r.product, r.Operands, r.Nodes, r.Sides, r.made = nil, nil, nodes, sides, was
		}
		r.none[n] = true
		return false
	}
	for _, in := range n.Inputs {
		if in != nil && !r.visit(d, in) {
			return false
		}
	}
	r.Nodes = append(r.Nodes, n)
	return true
}

// findJoins finds the nodes after the second product that multiply its rows with values computed from the scores.
func (r *region) findJoins(g *match.View, d dense) {
	v := r.sum.Outputs[0]
	for range maxChain {
		n := soleReader(g, v)
		if n == nil || v.IsOutput() || !onnx.IsStandardDomain(n.Domain) || result(n) == nil {
			return
		}
		if handed(g, n) != v {
			if !n.Is("Mul") && !(n.Is("Div") && n.Input(0) == v) || len(n.Inputs) != 2 {
				return
			}
			factor := n.Inputs[0]
			if factor == v {
				factor = n.Inputs[1]
			}
			nodes, sides, made := slices.Clone(r.Nodes), slices.Clone(r.Sides), maps.Clone(r.made)
			if !d[factor] || !r.visit(d, factor) || len(r.Nodes) == len(nodes) {
				r.Nodes, r.Sides, r.made = nodes, sides, made
				return
			}
			r.joins = append(r.joins, join{n, v, factor})
		}
		v = n.Outputs[0]
	}
}

// closed returns a reason if a node outside the block reads a value between the products. Other regions may.
func (r *region) closed(g *match.View, others []*region) *reason.Reason {
	inside := func(n *onnx.Node) bool {
		return n.Is("Shape") || slices.ContainsFunc(others, func(o *region) bool {
			return n == o.sum || o.Has(n) || o.joinOf(n) != nil
		}) ||
			!slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return v != nil && g.IsNeeded(v) })
	}
	for _, n := range append(slices.Clone(r.Nodes), r.product) {
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			if v.IsOutput() {
				return reason.New(reason.AttentionRead, n, "%q in the block is an output of the graph", v.Name)
			}
			for _, reader := range g.Readers(v) {
				if !inside(reader) {
					return reason.New(reason.AttentionRead, reader, "%s reads the scores or weights of the block",
						reader.OpType)
				}
			}
		}
	}
	return nil
}
