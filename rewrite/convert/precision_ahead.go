package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// lookAhead marks the nodes that choices and angles depend on, back to a product, and those whose results are summed
// up.
func (p *precision) lookAhead() {
	p.scores, p.squares, p.angles = map[*onnx.Node]bool{}, map[*onnx.Node]bool{}, map[*onnx.Node]bool{}
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			switch {
			case choosing[n.OpType] && onnx.IsStandardDomain(n.Domain):
				p.mark(p.scores, n.Input(0))
			case n.Is("Cos"), n.Is("Sin"):
				p.mark(p.angles, n.Input(0))
			case reducing[n.OpType] && !n.Is("ReduceMax") && !n.Is("ReduceMin"):
				x := n.Input(0)
				for x != nil && x.Producer != nil && moving[x.Producer.OpType] {
					x = x.Producer.Input(0)
				}
				if x != nil && x.Producer != nil && slices.Contains([]string{"Abs", "Div", "Exp", "Mul", "Pow", "Sub"},
					x.Producer.OpType) {
					p.squares[x.Producer] = true
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
