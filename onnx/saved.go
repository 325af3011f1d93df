package onnx

import "slices"

// Save returns a function that puts the fields and lists of the node back as they are now. The values that it reads and
// writes are saved by themselves.
func (n *Node) Save() (restore func()) {
	was := *n
	was.Inputs, was.Outputs, was.Attributes = slices.Clone(n.Inputs), slices.Clone(n.Outputs),
		slices.Clone(n.Attributes)
	return func() { *n = was }
}

// SaveInput returns a function that puts input i of the node back as it is now, once. A value may have very many
// readers, so only the node's place among them is kept.
func (n *Node) SaveInput(i int) (restore func()) {
	old, at := n.Input(i), -1
	if old != nil {
		at = slices.Index(old.uses, Use{n, i})
	}
	return func() {
		if v := n.Input(i); v != nil {
			v.removeUse(n, i)
		}
		if i < len(n.Inputs) { // Save puts back how long the list was
			n.Inputs[i] = old
		}
		if at >= 0 {
			old.uses = slices.Insert(old.uses, at, Use{n, i})
		}
	}
}

// Save returns a function that puts the value back as it is now: its name, type and elements, who writes it, who reads
// it, and whether its graph has it. A value that nothing writes or reads yet is forgotten.
func (v *Value) Save() (restore func()) {
	was := *v
	was.uses = slices.Clone(v.uses)
	has := v.Graph.values[v.Name] == v && (v.Producer != nil || v.IsInput || v.Const != nil || len(v.uses) > 0)
	info, stored := v.info, ""
	name, typ := info.GetName(), info.GetType()
	if v.Const != nil {
		stored = v.Const.Name
	}
	return func() {
		v.Graph.forget(v)
		*v = was
		if has {
			v.Graph.values[v.Name] = v
			v.Graph.names.used[v.Name] = struct{}{}
		}
		if info != nil {
			info.Name, info.Type = ptr(name), typ
		}
		if v.Const != nil {
			v.Const.Name = stored
		}
	}
}

// Save returns a function that puts the graph's lists of nodes, inputs, outputs and initializers back as they are now.
// New initializers and inputs are forgotten. Nodes and values are saved by themselves.
func (g *Graph) Save() (restore func()) {
	nodes, initializers := g.Nodes, g.initializers // whoever takes from these lists makes new ones
	inputs, outputs := slices.Clone(g.Inputs), slices.Clone(g.Outputs)
	return func() {
		kept := make(map[*Value]bool, len(initializers)+len(inputs))
		for _, v := range slices.Concat(initializers, inputs) {
			kept[v] = true
		}
		for _, v := range slices.Concat(g.initializers, g.Inputs) {
			if !kept[v] {
				g.forget(v)
			}
		}
		g.Nodes, g.initializers, g.Inputs, g.Outputs = nodes, initializers, inputs, outputs
	}
}

// forget has the graph no longer find the value by its name.
func (g *Graph) forget(v *Value) {
	if g.values[v.Name] == v {
		delete(g.values, v.Name)
	}
}
