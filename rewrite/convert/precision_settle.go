package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// settle assigns the ops that only move elements the type of their readers, starting at the end of the graph, so that
// each Cast goes where it has the fewest readers. Moved constants, and integers that become floats, follow their
// readers too.
func (p *precision) settle(g *onnx.Graph) {
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		for _, s := range n.Subgraphs() {
			p.settle(s)
		}
		v := n.OutputValue(0)
		if v == nil || p.wide[n] || !p.isFloat(v) || !(moving[n.OpType] || n.Is("Cast") || n.Is("ConstantOfShape")) ||
			!onnx.IsStandardDomain(n.Domain) || n.AttrString("reduction", "none") != "none" {
			continue
		}
		var inHalf, inFloat bool
		for _, o := range n.Outputs {
			if p.isFloat(o) {
				h, f := p.wanted(o)
				inHalf, inFloat = inHalf || h, inFloat || f
			}
		}
		k := p.kinds[v]
		switch {
		case n.Is("Cast"):
			p.setFloat32(n, inFloat)
		case k.float32() && inHalf && !inFloat && p.computes(n):
			p.setFloat32(n, false)
			for _, o := range n.Outputs {
				p.kinds[o] = half
			}
		case k == constant && inFloat && !inHalf:
			p.setFloat32(n, true)
		}
	}
}

func (p *precision) setFloat32(n *onnx.Node, on bool) {
	if on {
		p.float32[n] = true
	} else {
		delete(p.float32, n)
	}
}

// wanted returns the types in which the readers of a value want it.
func (p *precision) wanted(v *onnx.Value) (inHalf, inFloat bool) {
	for _, u := range v.Uses() {
		switch p.wants(u) {
		case onnx.Float:
			inFloat = true
		case p.to:
			inHalf = true
		}
	}
	if v.IsOutput() {
		for _, g := range p.outputGraphs(v) {
			switch p.outputType(g, slices.Index(g.Outputs, v)) {
			case onnx.Float:
				inFloat = true
			default:
				inHalf = true
			}
		}
	}
	return inHalf, inFloat
}

// outputGraphs lists the graphs that a value is an output of: its own, or nested ones.
func (p *precision) outputGraphs(v *onnx.Value) []*onnx.Graph {
	var list []*onnx.Graph
	v.Graph.Walk(func(g *onnx.Graph) {
		if slices.Contains(g.Outputs, v) {
			list = append(list, g)
		}
	})
	return list
}

// outputType returns the type of a float32 output of a graph.
func (p *precision) outputType(g *onnx.Graph, i int) onnx.DataType {
	if v := g.Outputs[i]; g.Parent == nil && p.wide[v.Producer] && p.kinds[v].float32() {
		return onnx.Float
	}
	n := p.holder(g)
	if p.float32[n] {
		return onnx.Float
	}
	if n.Is("If") {
		if v := n.OutputValue(i); v != nil && p.kinds[v].float32() {
			return onnx.Float
		}
	}
	return p.to
}

// holder returns the node that a subgraph belongs to, nil for the main graph.
func (p *precision) holder(g *onnx.Graph) *onnx.Node {
	if g.Parent == nil {
		return nil
	}
	if p.holders == nil {
		p.holders = map[*onnx.Graph]*onnx.Node{}
		p.model.Graph.Walk(func(g *onnx.Graph) {
			for _, n := range g.Nodes {
				for _, s := range n.Subgraphs() {
					p.holders[s] = n
				}
			}
		})
	}
	return p.holders[g]
}

// wants returns the type in which a node reads a float32 value, or onnx.Undefined if it accepts any.
func (p *precision) wants(u onnx.Use) onnx.DataType {
	n := u.Node
	if c := p.combination(n); c != nil {
		return fusedOp(n).TypeOf(fusedOp(n).Inputs[u.Index], *c)
	}
	switch {
	case p.float32[n] && !n.Is("Cast"):
		return onnx.Float
	case n.Is("Loop"), n.Is("Scan"):
		return p.to
	case comparing[n.OpType] && onnx.IsStandardDomain(n.Domain):
		return p.to
	}
	if slices.ContainsFunc(n.Outputs, p.isFloat) && !n.Is("Cast") && !n.Is("Dropout") ||
		n.Is("Dropout") && u.Index == 0 {
		return p.to
	}
	return onnx.Undefined
}

// typeOf returns the type in the converted model of a value that was float32.
func (p *precision) typeOf(v *onnx.Value) onnx.DataType {
	n := v.Producer
	if c := p.combination(n); c != nil {
		return fusedOp(n).TypeOf(fusedOp(n).Outputs[v.Output], *c)
	}
	switch {
	case n == nil:
		if p.float32[p.holder(v.Graph)] {
			return onnx.Float // of a loop
		}
		return p.to
	case n.Is("If"):
		if p.kinds[v].float32() {
			return onnx.Float
		}
	case p.float32[n]:
		return onnx.Float
	case n.Is("LayerNormalization") && v.Output > 0:
		return onnx.Float
	}
	return p.to
}
