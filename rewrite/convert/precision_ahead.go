package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// lookAhead marks the nodes that choices and angles depend on, back to a product, those whose results are summed up,
// and the SiLU gates of what a norm normalises.
func (p *precision) lookAhead() {
	p.scores, p.squares = map[*onnx.Node]bool{}, map[*onnx.Node]bool{}
	p.angles, p.gates = map[*onnx.Node]bool{}, map[*onnx.Node]*onnx.Value{}
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			switch {
			case choosing[n.OpType] && onnx.IsStandardDomain(n.Domain):
				p.mark(p.scores, n.Input(0))
			case n.Is("Cos"), n.Is("Sin"):
				p.mark(p.angles, n.Input(0))
			case reducing[n.OpType] && !n.Is("ReduceMax") && !n.Is("ReduceMin"):
				square := computedBy(n.Input(0))
				if square == nil || !slices.Contains([]string{"Abs", "Div", "Exp", "Mul", "Pow", "Sub"},
					square.OpType) {
					continue
				}
				p.squares[square] = true
				if n.Is("ReduceMean") && (square.Is("Pow") || square.Is("Mul") && square.Input(0) == square.Input(1)) {
					p.markGate(square.Input(0))
				}
			}
		}
	})
}

// mark adds the nodes that a value is computed by to the list, back to products and to rows of tables of numbers.
func (p *precision) mark(list map[*onnx.Node]bool, v *onnx.Value) {
	if v == nil || v.Producer == nil || !p.isFloat(v) {
		return
	}
	n := v.Producer
	if list[n] || !onnx.IsStandardDomain(n.Domain) {
		return
	}
	if !(elementwise[n.OpType] || moving[n.OpType] || reducing[n.OpType] || choosing[n.OpType] || n.Is("Softmax") ||
		n.Is("LogSoftmax")) {
		return
	}
	list[n] = true
	for _, x := range n.Inputs {
		p.mark(list, x)
	}
}

// computedBy returns the node that computes a value, past those that move its elements; nil for an input or a constant.
func computedBy(v *onnx.Value) *onnx.Node {
	for v != nil && v.Producer != nil && moving[v.Producer.OpType] {
		v = v.Producer.Input(0)
	}
	if v == nil {
		return nil
	}
	return v.Producer
}

// markGate marks the product of a value with a SiLU, and the SiLU. What is squared is such a product in Mamba-2's norm.
func (p *precision) markGate(squared *onnx.Value) {
	product := computedBy(squared)
	if !product.Is("Mul") {
		return
	}
	for i := range 2 {
		gated := product.Input(1 - i)
		for _, n := range silu(product.Input(i)) {
			p.gates[product], p.gates[n] = gated, gated
		}
	}
}

// silu returns the nodes of x * Sigmoid(x), or the one of Swish, none if they do not compute the value.
func silu(v *onnx.Value) []*onnx.Node {
	if v == nil {
		return nil
	}
	n := v.Producer
	switch {
	case n.Is("Swish"):
		return []*onnx.Node{n}
	case n.Is("Mul"):
		for i := range 2 {
			s := n.Input(1 - i)
			if s != nil && s.Producer.Is("Sigmoid") && s.Producer.Input(0) == n.Input(i) {
				return []*onnx.Node{s.Producer, n}
			}
		}
	}
	return nil
}
