package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// RemoveUnread removes the nodes of a graph and its subgraphs whose outputs nothing reads, and unread initializers.
func (c *Change) RemoveUnread(root *onnx.Graph) error {
	var graphs []*onnx.Graph
	root.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
	slices.Reverse(graphs) // inner ones first: they read values of outer ones
	if err := c.RemoveUnreadNodes(graphs...); err != nil {
		return err
	}
	for _, g := range graphs {
		c.DropConstants(g.Initializers()...)
	}
	return c.Finish()
}

// RemoveUnreadNodes removes the nodes whose outputs nothing reads from graphs, but not from their subgraphs.
func (c *Change) RemoveUnreadNodes(graphs ...*onnx.Graph) error {
	for _, g := range graphs {
		dead, _ := Unread(g.Nodes)
		if err := c.remove(g, dead); err != nil {
			return err
		}
	}
	return nil
}

// Unread returns the nodes that nothing reads any more, among the given nodes of one graph and the nodes of that graph
// that only these needed, and the constants that they read.
func Unread(nodes []*onnx.Node) (dead map[*onnx.Node]bool, constants map[*onnx.Value]bool) {
	dead, constants = make(map[*onnx.Node]bool, len(nodes)), make(map[*onnx.Value]bool, len(nodes))
	left := make(map[*onnx.Value]int, len(nodes)) // number of live reads
	readings := func(v *onnx.Value) int {
		if _, ok := left[v]; !ok {
			left[v] = len(v.Uses()) + v.OutputUses()
		}
		return left[v]
	}
	queue := slices.Clone(nodes)
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if dead[n] || n.Graph != nodes[0].Graph ||
			slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return v != nil && readings(v) > 0 }) {
			continue
		}
		dead[n] = true
		EachRead(n, func(v *onnx.Value) {
			left[v] = readings(v) - 1
			if v.Producer != nil && left[v] == 0 {
				queue = append(queue, v.Producer)
			}
			if v.Const != nil {
				constants[v] = true
			}
		})
	}
	return dead, constants
}

// EachRead calls f for every value that the node or a node in its subgraphs reads.
func EachRead(n *onnx.Node, f func(*onnx.Value)) {
	for _, v := range n.Inputs {
		if v != nil {
			f(v)
		}
	}
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			EachRead(m, f)
		}
		for _, v := range g.Outputs {
			f(v)
		}
	}
}
