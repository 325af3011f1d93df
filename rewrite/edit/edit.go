// Package edit changes graphs in steps that can be taken back: what cannot be proven does not stay.
package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Change records edits of graphs. The zero value is an empty change.
type Change struct{ undo []func() }

// Undo takes all edits back, the last one first. Names that were given to values stay in use.
func (c *Change) Undo() {
	for _, undo := range slices.Backward(c.undo) {
		undo()
	}
	c.undo = nil
}

// SetInput makes v input i of a node that has that input.
func (c *Change) SetInput(n *onnx.Node, i int, v *onnx.Value) {
	old := n.Inputs[i]
	n.SetInput(i, v)
	c.undo = append(c.undo, func() { n.SetInput(i, old) })
}

// SetAttr sets an attribute of a node.
func (c *Change) SetAttr(n *onnx.Node, a *onnx.Attribute) {
	old := slices.Clone(n.Attributes)
	n.Attributes = slices.Clone(n.Attributes)
	n.SetAttr(a)
	c.undo = append(c.undo, func() { n.Attributes = old })
}

// SetOverload has a node call another overload of its op.
func (c *Change) SetOverload(n *onnx.Node, overload string) {
	old := n.Overload
	n.Overload = overload
	c.undo = append(c.undo, func() { n.Overload = old })
}

// SetType declares another type of a value whose type is declared.
func (c *Change) SetType(v *onnx.Value, t onnx.Type) {
	old, _ := v.Type()
	v.SetType(t)
	c.undo = append(c.undo, func() { v.SetType(old) })
}

// AddNode appends a node of the standard to a graph, as onnx.Graph.AddNode does.
func (c *Change) AddNode(g *onnx.Graph, op string, inputs, outputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
	n := g.AddNode(op, inputs, outputs, attrs...)
	c.undo = append(c.undo, func() {
		// Nothing reads what it computes any more: all later edits were taken back.
		_ = g.RemoveNodes(map[*onnx.Node]bool{n: true})
	})
	return n
}

// AddInitializer adds a constant to a graph, as onnx.Graph.AddInitializer does.
func (c *Change) AddInitializer(g *onnx.Graph, t *onnx.Tensor) *onnx.Value {
	v := g.AddInitializer(t)
	c.undo = append(c.undo, func() { g.RemoveUnusedInitializers(map[*onnx.Value]bool{v: true}) })
	return v
}
