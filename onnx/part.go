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

// Part returns a model of some nodes of the main graph, which are given in topological order. Its inputs are the values
// of inputs, its outputs those of outputs; the initializers that the nodes read come along. Values keep their names.
// Nodes are copied, tensors and functions are the model's own: the part must not be changed, and is of no use after
// the model is closed.
//
// It errs where a node reads a value that is neither made by another one of them nor an input or an initializer.
func (m *Model) Part(nodes []*Node, inputs []Port, outputs []*Value) (*Model, error) {
	part := New(m.IRVersion, 0)
	part.ProducerName, part.ProducerVersion, part.Path = m.ProducerName, m.ProducerVersion, m.Path
	part.Opsets = slices.Clone(m.Opsets)
	part.Graph.Name = m.Graph.Name
	sc := &scope{source: m.Graph, at: part.Graph, values: map[*Value]*Value{}, expansion: &expansion{}}
	for _, p := range inputs {
		sc.values[p.Value] = part.Graph.AddInput(p.Value.Name, p.Type)
	}
	made := map[*Value]bool{}
	for _, n := range nodes {
		for _, v := range n.Reads() {
			if made[v] || sc.values[v] != nil {
				continue
			}
			if v.Const == nil {
				return nil, fmt.Errorf("node %q reads %q, which is no input of the part", n.Label(), v.Name)
			}
			t := v.Const.copy()
			sc.values[v] = part.Graph.AddInitializer(t)
		}
		for _, v := range n.Outputs {
			made[v] = true
		}
	}
	if err := newInliner(part).copyNodes(nodes, sc, &part.Graph.Nodes); err != nil {
		return nil, err
	}
	for _, v := range outputs {
		w := sc.values[v]
		if w == nil {
			return nil, fmt.Errorf("%q is made by no node of the part", v.Name)
		}
		part.Graph.AddOutput(w)
	}
	part.Functions = m.Functions
	called := part.called()
	part.Functions = slices.DeleteFunc(slices.Clone(m.Functions), func(f *Function) bool { return !called[f] })
	return part, nil
}

// Reads lists what the node reads of its graph and of those around it, each value once: its inputs, and what the graphs
// in its attributes read from outside.
func (n *Node) Reads() []*Value {
	inner := map[*Graph]bool{}
	for _, s := range n.Subgraphs() {
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
	n.Walk(func(n *Node) {
		add(n.Inputs)
		for _, g := range n.Subgraphs() {
			add(g.Outputs)
		}
	})
	return list
}
