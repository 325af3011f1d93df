package onnx

import (
	"fmt"
	"slices"
)

// Port is an input of a part of a model: a value of the model, and the type that it has there.
type Port struct {
	Value *Value
	Type  Type
}

// Part returns a model of some nodes of the main graph, or of one graph in an attribute, which are given in topological
// order. Its inputs are the values of inputs, its outputs those of outputs; the constants that the nodes read come
// along, also those of the graphs around theirs. Values keep their names.
// Nodes are copied, tensors and functions are the model's own: the part must not be changed, and is of no use after
// the model is closed.
//
// It errs where a node reads a value that is neither made by another one of them nor an input or a constant.
func (m *Model) Part(nodes []*Node, inputs []Port, outputs []*Value) (*Model, error) {
	part := New(m.IRVersion, 0)
	part.ProducerName, part.ProducerVersion, part.Path = m.ProducerName, m.ProducerVersion, m.Path
	part.Opsets = slices.Clone(m.Opsets)
	part.Graph.Name = m.Graph.Name
	source := m.Graph
	if len(nodes) > 0 {
		source = nodes[0].Graph
	}
	sc := &scope{source: source, at: part.Graph, values: map[*Value]*Value{}, expansion: &expansion{}}
	for _, p := range inputs {
		sc.values[p.Value] = part.Graph.AddInput(p.Value.Name, p.Type)
	}
	addConstant := func(v *Value) bool {
		t := v.Const
		if t == nil {
			t = v.Constant()
		}
		if t == nil {
			return false
		}
		sc.values[v] = part.Graph.AddInitializer(t.Tied(v.Name))
		return true
	}
	made := map[*Value]bool{}
	for _, n := range nodes {
		for _, v := range n.Reads() {
			if !made[v] && sc.values[v] == nil && !addConstant(v) {
				return nil, fmt.Errorf("node %q reads %q, which is no input of the part", n.Label(), v.Name)
			}
		}
		for _, v := range n.Outputs {
			made[v] = true
		}
	}
	if err := newInliner(part).copyNodes(nodes, sc, &part.Graph.Nodes); err != nil {
		return nil, err
	}
	for _, v := range outputs {
		if sc.values[v] == nil && !addConstant(v) {
			return nil, fmt.Errorf("%q is made by no node of the part", v.Name)
		}
		part.Graph.AddOutput(sc.values[v])
	}
	part.Functions = m.Functions
	called := part.called()
	part.Functions = slices.DeleteFunc(slices.Clone(m.Functions), func(f *Function) bool { return !called[f] })
	return part, nil
}

// Reads lists what the node reads of its graph and of those around it, each value once: its inputs, and what the graphs
// in its attributes read from outside.
func (n *Node) Reads() []*Value { return readBy([]*Node{n}, nil, n.Subgraphs()) }

// Reads lists what the graph reads of those around it, each value once.
func (g *Graph) Reads() []*Value { return readBy(g.Nodes, g.Outputs, []*Graph{g}) }

// readBy lists what nodes read, and which of the outputs there are, that are no values of the graphs inside.
func readBy(nodes []*Node, outputs []*Value, inside []*Graph) []*Value {
	inner := map[*Graph]bool{}
	for _, s := range inside {
		s.Walk(func(g *Graph) { inner[g] = true })
	}
	var list []*Value
	seen := map[*Value]bool{nil: true}
	add := func(vs []*Value) {
		for _, v := range vs {
			if !seen[v] && !inner[v.Graph] {
				list = append(list, v)
			}
			seen[v] = true
		}
	}
	for _, n := range nodes {
		n.Walk(func(n *Node) {
			add(n.Inputs)
			for _, g := range n.Subgraphs() {
				add(g.Outputs)
			}
		})
	}
	add(outputs)
	return list
}
