package onnx

import (
	"fmt"
	"slices"
)

// Port is an input of a part of a model: a value of the model, and its type there.
type Port struct {
	Value *Value
	Type  Type
}

// Part returns a model of some nodes, given in topological order, of the main graph or of one graph in an attribute.
// inputs and outputs become its inputs and outputs. It includes the constants that the nodes read, also from enclosing
// graphs. Values keep their names. Nodes are copied, but tensors and functions are shared: do not change the part, or
// use it after the model is closed.
//
// It returns an error if a node reads a value that is not an input, a constant, or an output of another of the nodes.
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
				return nil, fmt.Errorf("node %q reads %q, which is not an input of the part", n.Label(), v.Name)
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
			return nil, fmt.Errorf("no node of the part makes %q", v.Name)
		}
		part.Graph.AddOutput(sc.values[v])
	}
	part.Functions = m.Functions
	called := part.called()
	part.Functions = slices.DeleteFunc(slices.Clone(m.Functions), func(f *Function) bool { return !called[f] })
	return part, nil
}

// Reads lists the values that the node reads from its graph and the enclosing ones, each once: its inputs, and the
// outer values that the graphs in its attributes read.
func (n *Node) Reads() []*Value { return readBy([]*Node{n}, nil, n.Subgraphs()) }

// Reads lists the values that the graph reads from the enclosing graphs, each once.
func (g *Graph) Reads() []*Value { return readBy(g.Nodes, g.Outputs, []*Graph{g}) }

// readBy lists the values that nodes and outputs read, except values of the inside graphs.
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
