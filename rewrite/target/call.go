package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A Call is a fused op in the graph that will replace a site, together with its own replacement.
type Call struct {
	// Op is the name of the fused op, and Node is its node.
	Op   string
	Node *onnx.Node
	// Site has its attributes and the types and shapes of its inputs.
	Site fused.Site
	// Repeats reports whether the last axis of an input of the fused op is known to hold every element twice: as two
	// equal halves or, with neighbors, as pairs of equal elements. The replacement may rely on it. nil means that
	// nothing is known.
	Repeats func(v *onnx.Value, neighbors bool) bool
	// SameSize reports whether dimensions of two values, given by axis, are known to have the same size. With nil, only
	// the sizes in Site are known.
	SameSize func(v *onnx.Value, axis int, w *onnx.Value, other int) bool
	// Fixed reports whether a value depends only on constants. Values computed from it become constants when the model
	// is written.
	Fixed func(v *onnx.Value) bool
	// Others are the fused ops before it at the same site. One that nothing reads any more is not written.
	Others []*Call
	// Products is shared by a model's calls with quantized weights, and may be nil.
	Products *Products

	edit    edit.Change
	kept    bool
	nodes   []*onnx.Node
	outputs map[int]*onnx.Value
}

// NewCall returns a Call for a fused op of a graph.
func NewCall(n *onnx.Node, s fused.Site) *Call {
	return &Call{Op: n.OpType, Node: n, Site: s, Fixed: func(v *onnx.Value) bool { return v.Constant() != nil }}
}

// Input returns input i, or nil if it is left out.
func (c *Call) Input(i int) *onnx.Value { return c.Node.Input(i) }

// Type returns the type of input i.
func (c *Call) Type(i int) onnx.DataType {
	if i < len(c.Site.Types) {
		return c.Site.Types[i]
	}
	return onnx.Undefined
}

// Dims returns the shape of input i, with -1 for an unknown dimension, or nil if the rank is unknown.
func (c *Call) Dims(i int) []int64 {
	if i < len(c.Site.Dims) {
		return c.Site.Dims[i]
	}
	return nil
}

// sameDim reports whether dimensions of inputs i and k are known to have the same size.
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

// size returns the size of a dimension of input i as a vector with one element.
func (c *Call) size(i, axis int) *onnx.Value {
	if dims := c.Dims(i); axis < len(dims) && dims[axis] >= 0 {
		return c.Integers(dims[axis])
	}
	return c.Op1("Shape", []*onnx.Value{c.Input(i)}, onnx.IntAttr("start", int64(axis)),
		onnx.IntAttr("end", int64(axis)+1))
}

// The methods below read the attributes of a call as attributes of another op that has them too: NormRotary has the
// attributes of RotaryEmbedding, and all gated ops have the attributes of GLU.

func (c *Call) asCausalConv() fused.CausalConv {
	return fused.Read[fused.CausalConv](c.Site.Attributes)
}
func (c *Call) asLinearAttention() fused.LinearAttention {
	return fused.Read[fused.LinearAttention](c.Site.Attributes)
}
func (c *Call) asAttention() fused.Attention { return fused.Read[fused.Attention](c.Site.Attributes) }
func (c *Call) asGLU() fused.GLU             { return fused.Read[fused.GLU](c.Site.Attributes) }
func (c *Call) asMoE() fused.MoE             { return fused.Read[fused.MoE](c.Site.Attributes) }
func (c *Call) asNorm() fused.RMSNorm        { return fused.Read[fused.RMSNorm](c.Site.Attributes) }
func (c *Call) asQMoE() fused.QMoE           { return fused.Read[fused.QMoE](c.Site.Attributes) }
func (c *Call) asRotary() fused.RotaryEmbedding {
	return fused.Read[fused.RotaryEmbedding](c.Site.Attributes)
}
func (c *Call) asRouter() fused.TopKRouter { return fused.Read[fused.TopKRouter](c.Site.Attributes) }

// Add adds a node with n outputs. Producers must be added before their readers.
func (c *Call) Add(domain, op string, n int, inputs []*onnx.Value, attrs ...*onnx.Attribute) []*onnx.Value {
	g := c.Node.Graph
	outs := make([]*onnx.Value, n)
	for i := range outs {
		outs[i] = g.NewValue(op)
	}
	node := c.edit.NewNode(g, op, inputs, outs, attrs...)
	node.Domain, node.Name = domain, c.Node.Label()+"_"+op
	if k := c.count(op); k > 0 {
		node.Name += fmt.Sprintf("_%d", k)
	}
	c.nodes = append(c.nodes, node)
	return outs
}

// count counts the added nodes of a type.
func (c *Call) count(op string) (n int) {
	for _, added := range c.nodes {
		if added.OpType == op {
			n++
		}
	}
	return n
}

// output adds output i to an added node.
func (c *Call) output(n *onnx.Node, i int) *onnx.Value {
	v := c.Node.Graph.NewValue(n.OpType)
	c.edit.TakeOutput(n, i, v)
	return v
}

// Op1 adds a node of the standard domain with one output.
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

// Cast casts v from one type to the other, and returns v itself if they are equal.
func (c *Call) Cast(v *onnx.Value, from, to onnx.DataType) *onnx.Value {
	if from == to {
		return v
	}
	return c.Op1("Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
}

// Output makes v, an output of an added node, replace output i of the fused op.
func (c *Call) Output(i int, v *onnx.Value) {
	if c.outputs == nil {
		c.outputs = map[int]*onnx.Value{}
	}
	c.outputs[i] = v
}

// Keep keeps the fused op itself.
func (c *Call) Keep() { c.kept = true }

// finish replaces the fused op by the added nodes.
func (c *Call) finish() error {
	if c.kept {
		return nil
	}
	for i, old := range c.Node.Outputs {
		v := c.outputs[i]
		if old == nil {
			continue // v is left out: nothing reads it
		}
		if v == nil || v.Producer == nil {
			return errors.Join(fmt.Errorf("mojo.%s: nothing was written for output %d", c.Op, i), c.edit.Undo())
		}
		c.edit.Reread(v, old) // v keeps its name
		c.edit.TakeOutput(v.Producer, v.Output, old)
	}
	c.edit.Insert(c.Node, c.nodes...)
	c.edit.Drop(c.Node)
	return c.edit.Finish()
}
