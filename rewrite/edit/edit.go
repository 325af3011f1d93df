// Package edit changes graphs in steps that can be undone, so that a change without a proof can be removed.
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

// AddNode appends a node of the standard to a graph, as onnx.Graph.AddNode does.
func (c *Change) AddNode(g *onnx.Graph, op string, inputs, outputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
	n := g.AddNode(op, inputs, outputs, attrs...)
	c.undo = append(c.undo, func() {
		// Nothing reads its outputs anymore: all later edits were taken back.
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
