package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// maxExpertSteps bounds the nodes between the activation of an expert and its products.
const maxExpertSteps = 64

// stackedExperts reads the experts of a region whose weights are stored together, with an axis for the experts.
func (f *finder) stackedExperts(reg *region) (e *experts, why string) {
	k := &expertReader{f: f, g: f.view, reg: reg, products: map[*onnx.Node]*expertProduct{}, biases: map[stackKey]*stack{}}
	for _, n := range reg.nodes {
		if p := stackedProduct(k.g, n, reg.routing.experts); p != nil {
			k.products[n] = p
		}
	}
	if len(k.products) == 0 {
		return nil, ""
	}
	k.findBiases()
	return k.read()
}

// expertReader reads experts from one way that tokens take through them: the others are taken for alike.
type expertReader struct {
	f        *finder
	g        *match.View
	reg      *region
	products map[*onnx.Node]*expertProduct
	biases   map[stackKey]*stack // by the weights of the product that they are added to
}

type stackKey struct {
	stack *onnx.Value
	part  part
}

func (s *stack) key() stackKey {
	k := stackKey{stack: s.parts[0]}
	if s.part != nil {
		k.part = *s.part
	}
	return k
}

func (k *expertReader) read() (*experts, string) {
	down := k.productBehind(k.reg.y)
	if down == nil {
		return nil, "the result is not computed from a product with the weights of experts"
	}
	e := &experts{down: down.weights, downBias: k.bias(down)}
	gate, up, act, why := k.activation(down.rows)
	if why != "" {
		return nil, why
	}
	e.act = act
	var first *expertProduct
	whole := gate
	if e.packing = "none"; up != nil {
		whole, e.packing, e.upFirst = packed(k.g, gate, up)
	}
	if whole != nil {
		if first = k.productBehind(whole); first == nil || first == down {
			return nil, "what the experts activate is not computed from a product with their weights"
		}
		e.gateUp, e.gateUpBias, e.scaled = first.weights, k.bias(first), k.weighted(first.rows)
		return e, ""
	}
	a, b := k.productBehind(gate), k.productBehind(up)
	if a == nil || b == nil || a == down || b == down {
		return nil, "gate and up of the experts are not computed from products with their weights"
	}
	if a.node == b.node { // such as relu(x) times its square
		return nil, "what stands between the products of an expert is no activation that the op has"
	}
	gateBias, upBias := k.bias(a), k.bias(b)
	e.scaled = k.weighted(a.rows)
	if (gateBias == nil) != (upBias == nil) {
		return nil, "one of gate and up of the experts has a bias, the other none"
	}
	e.gateUp, e.packing, e.upFirst = k.joined(a.weights, b.weights)
	if gateBias != nil {
		var packing string
		var upFirst bool
		if e.gateUpBias, packing, upFirst = k.joined(gateBias, upBias); packing != e.packing || upFirst != e.upFirst {
			e.gateUp, e.gateUpBias = nil, nil
		}
	}
	if e.gateUp == nil {
		e.packing, e.upFirst = "halves", false
		e.gate, e.up, e.gateBias, e.upBias = a.weights, b.weights, gateBias, upBias
	}
	return e, ""
}

// joined returns the stack that gate and up are two parts of; nil where they are not.
func (k *expertReader) joined(gate, up *stack) (whole *stack, packing string, upFirst bool) {
	a, b := gate.part, up.part
	if gate.parts[0] != up.parts[0] || gate.inOut != up.inOut || a == nil || b == nil || a.axis != b.axis || a.n != b.n || a.step != b.step {
		return nil, "", false
	}
	if d, ok := k.g.Facts.Dim(gate.parts[0], a.axis); !ok || d != 2*a.n {
		return nil, "", false
	}
	whole = &stack{parts: gate.parts, inOut: gate.inOut}
	switch {
	case a.step == 1 && a.from == 0 && b.from == a.n:
		return whole, "halves", false
	case a.step == 1 && b.from == 0 && a.from == a.n:
		return whole, "halves", true
	case a.step == 2 && a.from == 0 && b.from == 1:
		return whole, "interleaved", false
	}
	return nil, "", false
}

// productBehind finds the nearest product with weights of experts that v is computed from; nil where there is none.
func (k *expertReader) productBehind(v *onnx.Value) *expertProduct {
	queue := []*onnx.Value{v}
	seen := map[*onnx.Node]bool{}
	for len(queue) > 0 {
		n := match.Producer(queue[0])
		queue = queue[1:]
		if n == nil || seen[n] || !k.reg.inside[n] {
			continue
		}
		seen[n] = true
		if p := k.products[n]; p != nil {
			return p
		}
		for _, in := range k.g.Operands(n) {
			if k.g.IsData(in) && in != k.reg.x {
				queue = append(queue, in)
			}
		}
	}
	return nil
}

// activation goes back from the rows of the down projection to the activation that they come from.
func (k *expertReader) activation(v *onnx.Value) (gate, up *onnx.Value, act activation, why string) {
	for range maxExpertSteps {
		if v = k.g.Resolve(v); k.products[match.Producer(v)] != nil {
			return nil, nil, act, "there is no activation between the products of an expert"
		}
		if gate, up, act = k.f.activated(v); gate != nil {
			return gate, up, act, ""
		}
		next := k.rowsOf(v)
		if next == nil {
			break
		}
		v = next
	}
	return nil, nil, act, "what stands between the products of an expert is no activation that the op has: " + k.g.Describe(v)
}

// rowsOf returns the value whose rows v has, picked, repeated, moved, scaled one by one or in another type; nil where v is made otherwise.
func (k *expertReader) rowsOf(v *onnx.Value) *onnx.Value {
	n := v.Producer
	if n == nil || !k.reg.inside[n] || !onnx.IsStandardDomain(n.Domain) {
		return nil
	}
	in := n.Input(0)
	switch n.OpType {
	case "Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "GatherND", "Gather":
		return in
	case "Slice", "Split", "Concat":
		a, ok1 := k.g.Facts.Dim(in, -1)
		b, ok2 := k.g.Facts.Dim(v, -1)
		if ok1 && ok2 && a == b {
			return in
		}
	case "Mul", "Where": // by what follows from the choice
		made := slices.DeleteFunc(slices.Clone(n.Inputs), func(w *onnx.Value) bool { return k.productBehind(w) == nil })
		if len(made) == 1 {
			return made[0]
		}
	}
	return nil
}

// weighted reports whether the numbers of v are computed with the weights of the choice, and not by a mask that is made of them alone.
func (k *expertReader) weighted(v *onnx.Value) bool {
	r := k.reg.routing
	seen := map[*onnx.Value]bool{}
	queue := []*onnx.Value{v}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		if v == nil || seen[v] || !k.g.Facts.DataType(v).IsFloat() {
			continue
		}
		if seen[v] = true; v == r.weights || v == r.dense {
			return true
		}
		if n := v.Producer; v != k.reg.x && k.reg.inside[n] {
			queue = append(queue, k.g.Operands(n)...)
		}
	}
	return false
}

// findBiases finds what is added to products: a constant with a row for each expert.
func (k *expertReader) findBiases() {
	for _, n := range k.reg.nodes {
		switch {
		case n.Is("Add") && len(n.Inputs) == 2:
			for i, v := range n.Inputs {
				if b := k.biasOf(v); b != nil {
					if p := k.productBehind(n.Inputs[1-i]); p != nil {
						k.biases[p.weights.key()] = b
					}
				}
			}
		case n.Is("Gemm") && k.products[n] != nil && n.Input(2) != nil:
			if b := k.biasOf(n.Input(2)); b != nil {
				k.biases[k.products[n].weights.key()] = b
			}
		}
	}
}

func (k *expertReader) bias(p *expertProduct) *stack { return k.biases[p.weights.key()] }

// biasOf reads v as rows of a constant [experts, out] or [experts, 1, out]; nil when it is none.
func (k *expertReader) biasOf(v *onnx.Value) *stack {
	w := pickedStack(k.g, v, k.reg.routing.experts)
	if w == nil {
		return nil
	}
	rank, _ := k.g.Facts.Rank(w.stack)
	for i := 1; i < rank-1; i++ {
		if d, ok := k.g.Facts.Dim(w.stack, i); !ok || d != 1 {
			return nil
		}
	}
	if !slices.Contains(w.axes, rank-1) {
		return nil
	}
	return &stack{parts: []*onnx.Value{w.stack}, part: w.part}
}
