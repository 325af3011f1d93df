package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// NewNode returns a node of the standard domain that is not yet in the graph's list of nodes; Insert adds it. It takes
// over outputs that another node writes.
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

// AddNode appends a node like NewNode's. Finish moves it to its place.
func (c *Change) AddNode(g *onnx.Graph, op string, inputs, outputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
	n := c.NewNode(g, op, inputs, outputs, attrs...)
	c.SetNodes(g, append(g.Nodes, n))
	return n
}

// Insert makes Finish insert new nodes directly before another one, after nodes inserted there earlier.
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

// SetNodes replaces the list of a graph's nodes. The new list must contain the old nodes; it may add new ones.
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

// SetInputs sets the inputs of a node.
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

// Reread makes all nodes that read v read w instead.
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

// Become turns a node into another op of its domain, with these attributes.
func (c *Change) Become(n *onnx.Node, op string, attrs ...*onnx.Attribute) {
	c.keepNode(n)
	n.OpType, n.Attributes = op, attrs
}

// SetDomain changes the domain and the overload of a node's op.
func (c *Change) SetDomain(n *onnx.Node, domain, overload string) {
	c.keepNode(n)
	n.Domain, n.Overload = domain, overload
}

// SetAttr sets attributes of a node and replaces those with the same names.
func (c *Change) SetAttr(n *onnx.Node, attrs ...*onnx.Attribute) {
	c.keepNode(n)
	n.Attributes = slices.Clone(n.Attributes) // nodes may share the list
	for _, a := range attrs {
		n.SetAttr(a)
	}
}

// RemoveAttr removes an attribute, which must not hold a graph, from a node.
func (c *Change) RemoveAttr(n *onnx.Node, name string) {
	c.keepNode(n)
	n.RemoveAttr(name)
}
