package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// NewNode makes a node of the standard that is not in the graph's list of nodes yet: Insert puts it there.
// Outputs that another node writes are taken from it.
func (c *Change) NewNode(g *onnx.Graph, op string, inputs, outputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
	c.keepValues(inputs...)
	n := g.NewNode(op, inputs, attrs...)
	n.Outputs = make([]*onnx.Value, len(outputs))
	for i, v := range outputs {
		if v != nil {
			c.TakeOutput(n, i, v)
		}
	}
	return n
}

// AddNode appends a node as NewNode makes it; Finish puts it in its place.
func (c *Change) AddNode(g *onnx.Graph, op string, inputs, outputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
	n := c.NewNode(g, op, inputs, outputs, attrs...)
	c.SetNodes(g, append(g.Nodes, n))
	return n
}

// Insert has Finish put new nodes directly before another one, behind those that were inserted there earlier.
func (c *Change) Insert(before *onnx.Node, nodes ...*onnx.Node) {
	g := before.Graph
	if c.inserted == nil {
		c.inserted = map[*onnx.Graph]map[*onnx.Node][]*onnx.Node{}
	}
	if c.inserted[g] == nil {
		c.inserted[g] = map[*onnx.Node][]*onnx.Node{}
	}
	c.inserted[g][before] = append(c.inserted[g][before], nodes...)
}

// SetNodes makes nodes the list of a graph's nodes. It has the nodes of the list before, and new ones.
func (c *Change) SetNodes(g *onnx.Graph, nodes []*onnx.Node) {
	c.keepGraph(g)
	g.Nodes = nodes
}

// SetInput makes v, which may be nil, input i of a node.
func (c *Change) SetInput(n *onnx.Node, i int, v *onnx.Value) {
	c.keepNode(n)
	if c.Undoable && !c.whole {
		restore := n.SaveInput(i)
		c.undo = append(c.undo, func() error { restore(); return nil })
	}
	n.SetInput(i, v)
	c.rewired(n.Graph)
}

// SetInputs makes values the inputs of a node.
func (c *Change) SetInputs(n *onnx.Node, values ...*onnx.Value) {
	for i := range max(len(n.Inputs), len(values)) {
		var v *onnx.Value
		if i < len(values) {
			v = values[i]
		}
		if i >= len(n.Inputs) || n.Inputs[i] != v {
			c.SetInput(n, i, v)
		}
	}
	c.keepNode(n)
	n.Inputs = n.Inputs[:len(values)]
}

// Reread has all that reads v as an input read w instead.
func (c *Change) Reread(v, w *onnx.Value) {
	for _, u := range slices.Clone(v.Uses()) {
		c.SetInput(u.Node, u.Index, w)
	}
}

// TakeOutput makes v, which another node may have written, output i of a node.
func (c *Change) TakeOutput(n *onnx.Node, i int, v *onnx.Value) {
	c.keepNode(n)
	c.keepNode(v.Producer)
	c.keepValues(v, n.OutputValue(i))
	n.TakeOutput(i, v)
	c.rewired(n.Graph)
}

// Become makes a node one of another op of its domain, with these attributes.
func (c *Change) Become(n *onnx.Node, op string, attrs ...*onnx.Attribute) {
	c.keepNode(n)
	n.OpType, n.Attributes = op, attrs
}

// SetDomain makes a node one of an op of another domain, and of another overload of it.
func (c *Change) SetDomain(n *onnx.Node, domain, overload string) {
	c.keepNode(n)
	n.Domain, n.Overload = domain, overload
}

// SetAttr sets attributes of a node, and replaces those with the same names.
func (c *Change) SetAttr(n *onnx.Node, attrs ...*onnx.Attribute) {
	c.keepNode(n)
	n.Attributes = slices.Clone(n.Attributes) // nodes may share the list
	for _, a := range attrs {
		n.SetAttr(a)
	}
}

// RemoveAttr takes an attribute, which must hold no graph, from a node.
func (c *Change) RemoveAttr(n *onnx.Node, name string) {
	c.keepNode(n)
	n.RemoveAttr(name)
}
