// Package edit changes the graphs of models. No other package changes a graph that it did not build.
package edit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Change is a series of edits of graphs. Finish completes it: it removes nodes that the edits left without readers,
// and sorts the others. The zero value has no edits.
type Change struct {
	// Undoable keeps the data for Undo.
	Undoable bool

	undo     []func() error // the first edit first
	saved    map[any]bool
	inserted map[*onnx.Graph]map[*onnx.Node][]*onnx.Node // before existing nodes
	whole    bool                                        // the whole model is saved
	dropped  []*onnx.Node
	unread   map[*onnx.Value]bool // dropped constants
	unsorted []*onnx.Graph
}

// Whole returns an undoable change of a whole model, for edits that touch most of it. Undo recreates the graphs, nodes
// and values of the model as they are now.
func Whole(m *onnx.Model) *Change {
	c := &Change{Undoable: true}
	c.keepWhole(m)
	return c
}

// keepWhole saves all of a model. Afterwards nothing else must be saved, and nothing may have been saved before.
func (c *Change) keepWhole(m *onnx.Model) {
	if c.Undoable && !c.whole {
		if len(c.undo) > 0 {
			panic("edit: a change that is undone as a whole must begin with Whole")
		}
		c.undo, c.whole = append(c.undo, m.Snapshot()), true
	}
}

// Undo undoes all edits, the last one first. Names given to values stay in use. It panics if the change is not
// undoable.
func (c *Change) Undo() error {
	if !c.Undoable {
		panic("edit: the change is not undoable")
	}
	var errs []error
	for _, undo := range slices.Backward(c.undo) {
		errs = append(errs, undo())
	}
	*c = Change{Undoable: true}
	return errors.Join(errs...)
}

// Join adds the edits of another change, which was made after those of c and must not be used any more.
func (c *Change) Join(later *Change) {
	if c.Undoable {
		c.undo = append(c.undo, later.undo...)
	}
	for _, before := range later.inserted {
		for n, nodes := range before {
			c.Insert(n, nodes...)
		}
	}
	c.Drop(later.dropped...)
	for v := range later.unread {
		c.DropConstants(v)
	}
	for _, g := range later.unsorted {
		c.rewired(g)
	}
}

// keep records how to restore an object, unless that was recorded before.
func (c *Change) keep(object any, save func() func()) {
	if !c.Undoable || c.whole || c.saved[object] {
		return
	}
	if c.saved == nil {
		c.saved = map[any]bool{}
	}
	restore := save()
	c.saved[object] = true
	c.undo = append(c.undo, func() error { restore(); return nil })
}

func (c *Change) keepNode(n *onnx.Node) {
	if c.Undoable && n != nil {
		c.keep(n, n.Save)
	}
}

func (c *Change) keepValues(values ...*onnx.Value) {
	for _, v := range values {
		if c.Undoable && v != nil {
			c.keep(v, v.Save)
		}
	}
}

func (c *Change) keepGraph(g *onnx.Graph) { c.keep(g, g.Save) }

// rewired records that nodes of a graph may precede nodes that they read.
func (c *Change) rewired(g *onnx.Graph) {
	for ; g != nil; g = g.Parent {
		if !slices.Contains(c.unsorted, g) {
			c.unsorted = append(c.unsorted, g)
		}
	}
}

// Drop makes Finish remove the nodes unless something reads them, together with the nodes and constants that only they
// needed.
func (c *Change) Drop(nodes ...*onnx.Node) { c.dropped = append(c.dropped, nodes...) }

// DropConstants makes Finish remove the constants among the values that nothing reads.
func (c *Change) DropConstants(values ...*onnx.Value) {
	for _, v := range values {
		if v.IsConstant() {
			if c.unread == nil {
				c.unread = map[*onnx.Value]bool{}
			}
			c.unread[v] = true
		}
	}
}

// Finish moves inserted nodes to their places, removes dropped ones, and sorts the graphs that got nodes or whose nodes
// read other values. More edits and another Finish may follow.
func (c *Change) Finish() error {
	for g, before := range c.inserted {
		c.keepGraph(g)
		g.InsertAt(before)
	}
	for len(c.dropped) > 0 {
		g := c.dropped[0].Graph
		var here, others []*onnx.Node
		for _, n := range c.dropped {
			if n.Graph == g {
				here = append(here, n)
			} else {
				others = append(others, n)
			}
		}
		c.dropped = others
		if g == nil { // already removed
			continue
		}
		dead, constants := Unread(here)
		if err := c.remove(g, dead); err != nil {
			return err
		}
		for v := range constants {
			c.DropConstants(v)
		}
	}
	byGraph := map[*onnx.Graph]map[*onnx.Value]bool{}
	for v := range c.unread {
		if byGraph[v.Graph] == nil {
			byGraph[v.Graph] = map[*onnx.Value]bool{}
		}
		byGraph[v.Graph][v] = true
	}
	for g, values := range byGraph {
		c.RemoveUnused(g, values)
	}
	graphs := c.unsorted
	c.inserted, c.unread, c.unsorted = nil, nil, nil
	for _, g := range graphs {
		c.keepGraph(g)
		if err := g.Sort(); err != nil {
			return fmt.Errorf("the changed nodes cannot be put in order: %w", err)
		}
	}
	return nil
}

// remove removes unread nodes from a graph.
func (c *Change) remove(g *onnx.Graph, dead map[*onnx.Node]bool) error {
	if len(dead) == 0 { // a large graph need not be kept and searched
		return nil
	}
	if c.Undoable && !c.whole {
		c.keepGraph(g)
		for n := range dead {
			c.keepNode(n)
			c.keepValues(n.Outputs...)
			EachRead(n, func(v *onnx.Value) { c.keepValues(v) })
		}
	}
	return g.RemoveNodes(dead)
}

// RemoveUnused removes the given initializers of a graph that nothing reads.
func (c *Change) RemoveUnused(g *onnx.Graph, values map[*onnx.Value]bool) {
	c.keepGraph(g)
	if c.Undoable {
		for v := range values {
			c.keepValues(v)
		}
	}
	g.RemoveUnusedInitializers(values)
}
