package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Opsets in which the ops that bodies use changed.
const (
	castLikeOpset   = 15 // CastLike appears
	scanBFloatOpset = 16 // Scan takes bfloat16
	layerNormOpset  = 17 // LayerNormalization appears
	reduceAxesOpset = 18 // ReduceMean and ReduceMax take their axes as an input
	splitPartsOpset = 18 // Split demands num_outputs if no sizes are given
)

// body builds the nodes of a definition.
type body struct {
	root *onnx.Graph // the function's graph
	g    *onnx.Graph // where nodes are added: root or a subgraph
	site Site
	in   []*onnx.Value
	// known maps names of INT attributes that the op itself does not have to their values.
	known map[string]*onnx.Value
	nudge *onnx.Value // a factor of norms; nil except in Op.Steps
}

// within returns a copy of b that adds nodes to a subgraph.
func (b *body) within(g *onnx.Graph) *body {
	c := *b
	c.g = g
	return &c
}

// op adds a node and returns its one output, called name (made unique).
func (b *body) op(name, opType string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := b.g.NewValue(name)
	b.g.AddNode(opType, inputs, []*onnx.Value{v}, attrs...)
	return v
}

// call is op for inputs given one by one.
func (b *body) call(name, opType string, inputs ...*onnx.Value) *onnx.Value {
	return b.op(name, opType, inputs)
}

// constant adds a Constant node to the function's graph. Subgraphs see it there, and some runtimes bind attribute
// references only in the outermost graph.
func (b *body) constant(name string, value *onnx.Attribute) *onnx.Value {
	v := b.root.NewValue(name)
	b.root.AddNode("Constant", nil, []*onnx.Value{v}, value)
	return v
}

// number adds a float32 scalar.
func (b *body) number(name string, v float32) *onnx.Value {
	return b.constant(name, onnx.FloatAttr("value_float", v))
}

// attribute reads the node's FLOAT attribute as a float32 scalar.
func (b *body) attribute(name string) *onnx.Value {
	return b.constant(name, onnx.RefAttr("value_float", onnx.AttrFloat, name))
}

// intAttribute reads the node's INT attribute as a vector of one int64.
func (b *body) intAttribute(name string) *onnx.Value {
	if v := b.known[name]; v != nil {
		return v
	}
	scalar := b.constant(name, onnx.RefAttr("value_int", onnx.AttrInt, name))
	return b.call(name+"_vector", "Unsqueeze", scalar, b.integers("front", 0))
}

// float32 casts v to float32, whatever its type, so that one body serves all types. Runtimes drop casts that change
// nothing.
func (b *body) float32(name string, v *onnx.Value) *onnx.Value {
	return b.op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Float)))
}

// round casts the float32 value v to the type of input i.
func (b *body) round(name string, v *onnx.Value, i int) *onnx.Value {
	if b.site.Opset < castLikeOpset {
		return b.op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(b.site.Types[i])))
	}
	return b.call(name, "CastLike", v, b.in[i])
}

// rounded rounds v to the type of input i and returns it in float32.
func (b *body) rounded(name string, v *onnx.Value, i int) *onnx.Value {
	return b.float32(name+"_32", b.round(name, v, i))
}

// mean averages v over the axes, keeping the dimensions.
func (b *body) mean(name string, v *onnx.Value, axes []int64) *onnx.Value {
	return b.reduce(name, "ReduceMean", v, axes)
}

// greatest returns the maximum over the last axis and keeps the axis.
func (b *body) greatest(name string, v *onnx.Value) *onnx.Value {
	return b.reduce(name, "ReduceMax", v, []int64{-1})
}

// reduce returns a reduction over the axes and keeps the axes.
func (b *body) reduce(name, op string, v *onnx.Value, axes []int64) *onnx.Value {
	keep := onnx.IntAttr("keepdims", 1)
	if b.site.Opset < reduceAxesOpset {
		return b.op(name, op, []*onnx.Value{v}, onnx.IntsAttr("axes", axes), keep)
	}
	return b.op(name, op, []*onnx.Value{v, b.integers("axes", axes...)}, keep)
}

// halves splits v in two equal parts along the last axis.
func (b *body) halves(first, second string, v *onnx.Value) (*onnx.Value, *onnx.Value) {
	attrs := []*onnx.Attribute{onnx.IntAttr("axis", -1)}
	if b.site.Opset >= splitPartsOpset {
		attrs = append(attrs, onnx.IntAttr("num_outputs", 2))
	}
	p, q := b.g.NewValue(first), b.g.NewValue(second)
	b.g.AddNode("Split", []*onnx.Value{v}, []*onnx.Value{p, q}, attrs...)
	return p, q
}

func (b *body) concat(name string, v, w *onnx.Value) *onnx.Value {
	return b.op(name, "Concat", []*onnx.Value{v, w}, onnx.IntAttr("axis", -1))
}

func (b *body) integers(name string, values ...int64) *onnx.Value {
	return b.constant(name, onnx.IntsAttr("value_ints", values))
}

// slice takes every step-th element of v along the last axis, from start (nil: the first) until before end (nil: the
// last is included).
func (b *body) slice(name string, v, start, end *onnx.Value, step int64) *onnx.Value {
	if start == nil {
		start = b.integers("start", 0)
	}
	if end == nil {
		end = b.integers("end", math.MaxInt64)
	}
	return b.call(name, "Slice", v, start, end, b.integers("axis", -1), b.integers("step", step))
}

// size returns dimension axis of v, a vector of one int64.
func (b *body) size(name string, v *onnx.Value, axis int64) *onnx.Value {
	return b.op(name, "Gather", []*onnx.Value{b.call(name+"_shape", "Shape", v), b.integers("axis", axis)},
		onnx.IntAttr("axis", 0))
}

// joined concatenates values along an axis.
func (b *body) joined(name string, axis int64, values ...*onnx.Value) *onnx.Value {
	return b.op(name, "Concat", values, onnx.IntAttr("axis", axis))
}

// output makes v the next output of the function under its documented name.
func (b *body) output(name string, v *onnx.Value) {
	if v.Name != name {
		v = b.call(name, "Identity", v)
	}
	b.g.AddOutput(v)
}
