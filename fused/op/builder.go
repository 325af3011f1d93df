package op

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Opsets in which the ops that bodies use changed.
const (
	allowZeroOpset  = 14 // Reshape can make dimensions of 0
	castLikeOpset   = 15 // CastLike appears
	ScanBFloatOpset = 16 // Scan takes bfloat16
	LayerNormOpset  = 17 // LayerNormalization appears
	ReduceAxesOpset = 18 // ReduceMean and ReduceMax take their axes as an input
	splitPartsOpset = 18 // Split demands num_outputs if no sizes are given
	Float8Opset     = 19 // Cast knows float8e4m3fn
)

// Body builds the nodes of a definition.
type Body struct {
	Root  *onnx.Graph // the function's graph
	Graph *onnx.Graph // where nodes are added: root or a subgraph
	Site  Site
	In    []*onnx.Value // the inputs, nil for one that is left out
	// Known maps names of INT attributes that the op itself does not have to their values.
	Known map[string]*onnx.Value
	Nudge *onnx.Value // a factor of norms; nil except in Op.Steps
}

// Within returns a copy of b that adds nodes to a subgraph.
func (b *Body) Within(g *onnx.Graph) *Body {
	c := *b
	c.Graph = g
	return &c
}

// Op adds a node and returns its one output, called name (made unique).
func (b *Body) Op(name, opType string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := b.Graph.NewValue(name)
	b.Graph.AddNode(opType, inputs, []*onnx.Value{v}, attrs...)
	return v
}

// Call is Op for inputs given one by one.
func (b *Body) Call(name, opType string, inputs ...*onnx.Value) *onnx.Value {
	return b.Op(name, opType, inputs)
}

// Constant adds a Constant node to the function's graph. Subgraphs see it there, and some runtimes bind attribute
// references only in the outermost graph.
func (b *Body) Constant(name string, value *onnx.Attribute) *onnx.Value {
	v := b.Root.NewValue(name)
	b.Root.AddNode("Constant", nil, []*onnx.Value{v}, value)
	return v
}

// Number adds a float32 scalar.
func (b *Body) Number(name string, v float32) *onnx.Value {
	return b.Constant(name, onnx.FloatAttr("value_float", v))
}

// Attribute reads the node's FLOAT attribute as a float32 scalar.
func (b *Body) Attribute(name string) *onnx.Value {
	return b.Constant(name, onnx.RefAttr("value_float", onnx.AttrFloat, name))
}

// IntAttribute reads the node's INT attribute as a vector of one int64.
func (b *Body) IntAttribute(name string) *onnx.Value {
	if v := b.Known[name]; v != nil {
		return v
	}
	scalar := b.Constant(name, onnx.RefAttr("value_int", onnx.AttrInt, name))
	return b.Call(name+"_vector", "Unsqueeze", scalar, b.Integers("front", 0))
}

// Float32 casts v to float32, whatever its type, so that one body serves all types. Runtimes drop casts that change
// nothing.
func (b *Body) Float32(name string, v *onnx.Value) *onnx.Value {
	return b.Op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Float)))
}

// Round casts the float32 value v to the type of input i.
func (b *Body) Round(name string, v *onnx.Value, i int) *onnx.Value {
	if b.Site.Opset < castLikeOpset {
		return b.Op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(b.Site.Types[i])))
	}
	return b.Call(name, "CastLike", v, b.In[i])
}

// Rounded rounds v to the type of input i and returns it in float32.
func (b *Body) Rounded(name string, v *onnx.Value, i int) *onnx.Value {
	return b.Float32(name+"_32", b.Round(name, v, i))
}

// Mean averages v over the axes, keeping the dimensions.
func (b *Body) Mean(name string, v *onnx.Value, axes []int64) *onnx.Value {
	return b.reduce(name, "ReduceMean", v, axes)
}

// Greatest returns the maximum over the last axis and keeps the axis.
func (b *Body) Greatest(name string, v *onnx.Value) *onnx.Value {
	return b.reduce(name, "ReduceMax", v, []int64{-1})
}

// reduce returns a reduction over the axes and keeps the axes.
func (b *Body) reduce(name, op string, v *onnx.Value, axes []int64) *onnx.Value {
	keep := onnx.IntAttr("keepdims", 1)
	if b.Site.Opset < ReduceAxesOpset {
		return b.Op(name, op, []*onnx.Value{v}, onnx.IntsAttr("axes", axes), keep)
	}
	return b.Op(name, op, []*onnx.Value{v, b.Integers("axes", axes...)}, keep)
}

// halves splits v in two equal parts along the last axis.
func (b *Body) halves(first, second string, v *onnx.Value) (*onnx.Value, *onnx.Value) {
	attrs := []*onnx.Attribute{onnx.IntAttr("axis", -1)}
	if b.Site.Opset >= splitPartsOpset {
		attrs = append(attrs, onnx.IntAttr("num_outputs", 2))
	}
	p, q := b.Graph.NewValue(first), b.Graph.NewValue(second)
	b.Graph.AddNode("Split", []*onnx.Value{v}, []*onnx.Value{p, q}, attrs...)
	return p, q
}

// Concat concatenates v and w along the last axis.
func (b *Body) Concat(name string, v, w *onnx.Value) *onnx.Value {
	return b.Op(name, "Concat", []*onnx.Value{v, w}, onnx.IntAttr("axis", -1))
}

// Integers adds a vector of int64.
func (b *Body) Integers(name string, values ...int64) *onnx.Value {
	return b.Constant(name, onnx.IntsAttr("value_ints", values))
}

// Slice takes every step-th element of v along the last axis, from start (nil: the first) until before end (nil: the
// last is included).
func (b *Body) Slice(name string, v, start, end *onnx.Value, step int64) *onnx.Value {
	if start == nil {
		start = b.Integers("start", 0)
	}
	if end == nil {
		end = b.Integers("end", math.MaxInt64)
	}
	return b.Call(name, "Slice", v, start, end, b.Integers("axis", -1), b.Integers("step", step))
}

// Size returns dimension axis of v, a vector of one int64.
func (b *Body) Size(name string, v *onnx.Value, axis int64) *onnx.Value {
	return b.Op(name, "Gather", []*onnx.Value{b.Call(name+"_shape", "Shape", v), b.Integers("axis", axis)},
		onnx.IntAttr("axis", 0))
}

// Joined concatenates values along an axis.
func (b *Body) Joined(name string, axis int64, values ...*onnx.Value) *onnx.Value {
	return b.Op(name, "Concat", values, onnx.IntAttr("axis", axis))
}

// output makes v the next output of the function under its documented name.
func (b *Body) output(name string, v *onnx.Value) {
	if v.Name != name {
		v = b.Call(name, "Identity", v)
	}
	b.Graph.AddOutput(v)
}

// Rows returns v as a matrix whose rows are its last dimension, and the shape of v.
func (b *Body) Rows(name string, v *onnx.Value) (matrix, shape *onnx.Value) {
	shape = b.Call(name+"_from", "Shape", v)
	width := b.Call(name+"_width", "Slice", shape, b.Integers("last", -1), b.Integers("end", math.MaxInt64))
	to := b.Op(name+"_to", "Concat", []*onnx.Value{b.Integers("any", -1), width}, onnx.IntAttr("axis", 0))
	return b.Call(name, "Reshape", v, to), shape
}

// Shaped gives v a shape of another tensor, which may be empty: Reshape takes a dimension of 0 for a copied one
// otherwise. Opset 13 has no way to say so.
func (b *Body) Shaped(name string, v, shape *onnx.Value) *onnx.Value {
	if b.Site.Opset < allowZeroOpset {
		return b.Call(name, "Reshape", v, shape)
	}
	return b.Op(name, "Reshape", []*onnx.Value{v, shape}, onnx.IntAttr("allowzero", 1))
}

// TopK returns the k greatest elements of v along the last axis and their indices; k is a vector of one.
func (b *Body) TopK(values, indices string, v, k *onnx.Value) (*onnx.Value, *onnx.Value) {
	a, i := b.Graph.NewValue(values), b.Graph.NewValue(indices)
	b.Graph.AddNode("TopK", []*onnx.Value{v, k}, []*onnx.Value{a, i}, onnx.IntAttr("axis", -1))
	return a, i
}

// Pairs returns the first and the second channels of the pairs in v.
func (b *Body) Pairs(first, second string, v *onnx.Value, layout string) (*onnx.Value, *onnx.Value) {
	if layout == LayoutHalves {
		return b.halves(first, second, v)
	}
	return b.Slice(first, v, nil, nil, 2), b.Slice(second, v, b.Integers("one", 1), nil, 2)
}
