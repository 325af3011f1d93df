package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Call is a fused op in the graph that is to replace a site, and what takes its place.
type Call struct {
	// Op is the fused op, Node its node.
	Op   string
	Node *onnx.Node
	// Site holds its attributes, and the types and shapes of its inputs.
	Site fused.Site
	// Repeats reports whether the last axis of an input of the fused op is known to hold everything twice: the second
	// half is the first one again, or, by neighbours, each element stands beside its double. What is written may rely
	// on it. nil knows of none.
	Repeats func(v *onnx.Value, neighbours bool) bool
	// SameSize reports whether dimensions of two values, by their axes, are known to have one size. nil knows of none
	// but those whose sizes Site has.
	SameSize func(v *onnx.Value, axis int, w *onnx.Value, other int) bool
	// Fixed reports whether a value follows from constants alone, and what is made of it becomes one when the model is
	// written.
	Fixed func(v *onnx.Value) bool
	// Others are the fused ops before it at the same site. One that nothing reads any more is not written.
	Others []*Call
	// Products is what the calls of a model share that are products with quantised weights; nil for none.
	Products *Products

	edit    edit.Change
	kept    bool
	nodes   []*onnx.Node
	outputs map[int]*onnx.Value
}

// NewCall describes a fused op of a graph.
func NewCall(n *onnx.Node, s fused.Site) *Call {
	return &Call{Op: n.OpType, Node: n, Site: s, Fixed: func(v *onnx.Value) bool { return v.Constant() != nil }}
}

// Input returns input i, nil when it is left out.
func (c *Call) Input(i int) *onnx.Value { return c.Node.Input(i) }

// Type returns the type of input i.
func (c *Call) Type(i int) onnx.DataType {
	if i < len(c.Site.Types) {
		return c.Site.Types[i]
	}
	return onnx.Undefined
}

// Dims returns the shape of input i: -1 for a dimension that is unknown, nil where the rank is.
func (c *Call) Dims(i int) []int64 {
	if i < len(c.Site.Dims) {
		return c.Site.Dims[i]
	}
	return nil
}

// sameDim reports whether dimensions of inputs i and k are known to have one size.
func (c *Call) sameDim(i, axis, k, other int) bool {
	x, y := c.Dims(i), c.Dims(k)
	if axis >= len(x) || other >= len(y) {
		return false
	}
	if x[axis] >= 0 && y[other] >= 0 {
		return x[axis] == y[other]
	}
	return c.SameSize != nil && c.SameSize(c.Input(i), axis, c.Input(k), other)
}

// size is the size of a dimension of input i, a vector of one element.
func (c *Call) size(i, axis int) *onnx.Value {
	if dims := c.Dims(i); axis < len(dims) && dims[axis] >= 0 {
		return c.Integers(dims[axis])
	}
	return c.Op1("Shape", []*onnx.Value{c.Input(i)}, onnx.IntAttr("start", int64(axis)),
		onnx.IntAttr("end", int64(axis)+1))
}

// Int, Float and String give attributes; every one of a fused op is written on its node.
func (c *Call) Int(name string) int64     { return c.Site.Attr(name).Int }
func (c *Call) Float(name string) float32 { return c.Site.Attr(name).Float }
func (c *Call) String(name string) string { return c.Site.Attr(name).String }

// Add adds a node with n outputs. The nodes of a call are added producers first.
func (c *Call) Add(domain, op string, n int, inputs []*onnx.Value, attrs ...*onnx.Attribute) []*onnx.Value {
	g := c.Node.Graph
	outs := make([]*onnx.Value, n)
	for i := range outs {
		outs[i] = g.NewValue(op)
	}
	node := c.edit.NewNode(g, op, inputs, outs, attrs...)
	node.Domain = domain
	c.nodes = append(c.nodes, node)
	return outs
}

// output adds output i to a node that was added.
func (c *Call) output(n *onnx.Node, i int) *onnx.Value {
	v := c.Node.Graph.NewValue(n.OpType)
	c.edit.TakeOutput(n, i, v)
	return v
}

// Op1 adds a node of the standard with one output.
func (c *Call) Op1(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	return c.Add("", op, 1, inputs, attrs...)[0]
}

// Constant adds a constant.
func (c *Call) Constant(t *onnx.Tensor) *onnx.Value {
	return c.Op1("Constant", nil, onnx.TensorAttr("value", t))
}

// Integers adds a constant vector of int64.
func (c *Call) Integers(values ...int64) *onnx.Value {
	return c.Op1("Constant", nil, onnx.IntsAttr("value_ints", values))
}

// Number adds a constant scalar of type t.
func (c *Call) Number(x float32, t onnx.DataType) *onnx.Value {
	return c.Cast(c.Op1("Constant", nil, onnx.FloatAttr("value_float", x)), onnx.Float, t)
}

// Cast adds a Cast, unless v, which has the type from, is of the type to already.
func (c *Call) Cast(v *onnx.Value, from, to onnx.DataType) *onnx.Value {
	if from == to {
		return v
	}
	return c.Op1("Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
}

// Output says that v, made by one of the added nodes, is output i of the fused op.
func (c *Call) Output(i int, v *onnx.Value) {
	if c.outputs == nil {
		c.outputs = map[int]*onnx.Value{}
	}
	c.outputs[i] = v
}

// Keep says that the target takes the fused op itself.
func (c *Call) Keep() { c.kept = true }

// finish puts the added nodes in the place of the fused op.
func (c *Call) finish() error {
	if c.kept {
		return nil
	}
	for i, old := range c.Node.Outputs {
		v := c.outputs[i]
		if old == nil {
			continue // left out: nothing reads v
		}
		if v == nil || v.Producer == nil {
			return errors.Join(fmt.Errorf("mojo.%s: nothing was written for output %d", c.Op, i), c.edit.Undo())
		}
		c.edit.Reread(v, old) // which keeps its name
		c.edit.TakeOutput(v.Producer, v.Output, old)
	}
	c.edit.Insert(c.Node, c.nodes...)
	c.edit.Drop(c.Node)
	return c.edit.Finish()
}
