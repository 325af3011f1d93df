package onnx

import "slices"

// Save returns a function that restores the fields and lists of the node. The values that it reads and writes are saved
// separately.
func (n *Node) Save() (restore func()) {
	was := *n
	was.Inputs, was.Outputs, was.Attributes = slices.Clone(n.Inputs), slices.Clone(n.Outputs),
		slices.Clone(n.Attributes)
	return func() { *n = was }
}

// SaveInput returns a function that restores input i of the node, once. A value may have very many readers, so only the
// node's index among them is kept.
func (n *Node) SaveInput(i int) (restore func()) {
	old, at := n.Input(i), -1
	if old != nil {
		at = slices.Index(old.uses, Use{n, i})
	}
	return func() {
		if v := n.Input(i); v != nil {
			v.removeUse(n, i)
		}
		if i < len(n.Inputs) { // Save restores the length of the list
			n.Inputs[i] = old
		}
		if at >= 0 {
			old.uses = slices.Insert(old.uses, at, Use{n, i})
		}
	}
}

// Save returns a function that restores the value: its name, type, elements, producer, readers, and whether its graph
// contains it. A value that is still unused is forgotten.
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

// Save returns a function that restores the graph's lists of nodes, inputs, outputs and initializers. It forgets new
// initializers and inputs. Nodes and values are saved separately.
func (g *Graph) Save() (restore func()) {
	nodes, initializers := g.Nodes, g.initializers // removing from these lists makes new ones
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

// forget removes the value from the graph's names.
func (g *Graph) forget(v *Value) {
	if g.values[v.Name] == v {
		delete(g.values, v.Name)
	}
}
