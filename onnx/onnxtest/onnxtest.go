// Package onnxtest builds small models for tests, node by node:
//
//	b := onnxtest.New(20)
//	x := b.Input("x", onnx.Float, "batch", 8)
//	mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
//	b.Output(b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, 1e-6))))
package onnxtest

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Builder adds nodes to a graph.
type Builder struct {
	// Model is nil if the graph belongs to no model, such as a function body that is not added yet.
	Model *onnx.Model
	// Graph receives the nodes: the main graph of the model, or the body of a node or function.
	Graph *onnx.Graph
}

// New returns a builder for the main graph of an empty model that imports this standard opset.
func New(opset int64) *Builder {
	m := onnx.New(10, opset)
	return &Builder{Model: m, Graph: m.Graph}
}

// Type returns a tensor type. A dimension is an int, or the name of a symbolic dimension, "" for an unnamed one.
func Type(t onnx.DataType, dims ...any) onnx.Type {
	typ := onnx.Type{DataType: t, HasShape: true, Dims: []onnx.Dim{}}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			typ.Dims = append(typ.Dims, onnx.Dim{Value: int64(d)})
		case string:
			typ.Dims = append(typ.Dims, onnx.Dim{Value: -1, Param: d})
		default:
			panic(fmt.Sprintf("onnxtest: a dimension of type %T", d))
		}
	}
	return typ
}

// Input adds an input of the graph; see Type for its dimensions.
func (b *Builder) Input(name string, t onnx.DataType, dims ...any) *onnx.Value {
	return b.Graph.AddInput(name, Type(t, dims...))
}

// Output makes v an output of the graph.
func (b *Builder) Output(v *onnx.Value) { b.Graph.AddOutput(v) }

// Op adds a node with one output and returns the output. The op is a standard op or "domain:Op". args are the node's
// inputs in order: values and lists of them, nil for an omitted input, and constants: a float64 is a float32 scalar, an
// int an int64 scalar, an []int64 a vector. Attributes may come anywhere.
func (b *Builder) Op(op string, args ...any) *onnx.Value { return b.Ops(1, op, args...)[0] }

// Ops is Op for a node with several outputs.
func (b *Builder) Ops(outputs int, op string, args ...any) []*onnx.Value {
	domain, op, found := strings.Cut(op, ":")
	if !found {
		domain, op = "", domain
	}
	var inputs []*onnx.Value
	var attributes []*onnx.Attribute
	for _, a := range args {
		switch a := a.(type) {
		case *onnx.Value:
			inputs = append(inputs, a)
		case []*onnx.Value:
			inputs = append(inputs, a...)
		case nil:
			inputs = append(inputs, nil)
		case *onnx.Attribute:
			attributes = append(attributes, a)
		case []*onnx.Attribute:
			attributes = append(attributes, a...)
		case float64:
			inputs = append(inputs, b.Floats([]int64{}, float32(a)))
		case int:
			scalar := onnx.NewInt64s("int", []int64{int64(a)})
			scalar.Dims = []int64{}
			inputs = append(inputs, b.Constant(scalar))
		case []int64:
			inputs = append(inputs, b.Ints(a...))
		default:
			panic(fmt.Sprintf("onnxtest: %s with an argument of type %T", op, a))
		}
	}
	values := make([]*onnx.Value, outputs)
	for i := range values {
		values[i] = b.Graph.NewValue(strings.ToLower(op))
	}
	n := b.Graph.AddNode(op, inputs, values, attributes...)
	n.Domain = domain
	if outputs > 0 {
		n.Name = "node_" + values[0].Name
	}
	return values
}

// Constant adds an initializer to the model's main graph, or a Constant node without a model.
func (b *Builder) Constant(t *onnx.Tensor) *onnx.Value {
	if b.Model == nil {
		return b.Op("Constant", onnx.TensorAttr("value", t))
	}
	return b.Model.Graph.AddInitializer(t)
}

// Ints adds a constant vector.
func (b *Builder) Ints(v ...int64) *onnx.Value { return b.Constant(onnx.NewInt64s("ints", v)) }

// Floats adds a constant of these dimensions.
func (b *Builder) Floats(dims []int64, v ...float32) *onnx.Value {
	return b.Constant(onnx.NewFloat32s("floats", dims, v))
}
