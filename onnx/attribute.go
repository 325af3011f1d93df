package onnx

import "github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"

// AttributeType is the kind of an Attribute, with the numbers of AttributeProto.AttributeType.
type AttributeType int32

// The kinds of attributes of onnx 1.23.
const (
	AttrUndefined     AttributeType = 0
	AttrFloat         AttributeType = 1
	AttrInt           AttributeType = 2
	AttrString        AttributeType = 3
	AttrTensor        AttributeType = 4
	AttrGraph         AttributeType = 5
	AttrFloats        AttributeType = 6
	AttrInts          AttributeType = 7
	AttrStrings       AttributeType = 8
	AttrTensors       AttributeType = 9
	AttrGraphs        AttributeType = 10
	AttrSparseTensor  AttributeType = 11
	AttrSparseTensors AttributeType = 12
	AttrTypeProto     AttributeType = 13
	AttrTypeProtos    AttributeType = 14
)

// Attribute is a named constant of a Node, or a reference to an attribute of the enclosing Function.
// Sparse tensors and types are kept as read and have no field here.
type Attribute struct {
	Name string
	Type AttributeType
	// RefName names the attribute of the enclosing function that provides the value; empty outside functions.
	RefName string

	Float   float32
	Int     int64
	String  string
	Tensor  *Tensor
	Graph   *Graph
	Floats  []float32
	Ints    []int64
	Strings []string
	Tensors []*Tensor
	Graphs  []*Graph

	proto *onnxpb.AttributeProto
}

// IntAttr makes an INT attribute.
func IntAttr(name string, v int64) *Attribute { return &Attribute{Name: name, Type: AttrInt, Int: v} }

// BoolAttr is an attribute that is 0 or 1.
func BoolAttr(name string, v bool) *Attribute {
	if v {
		return IntAttr(name, 1)
	}
	return IntAttr(name, 0)
}

// FloatAttr makes a FLOAT attribute.
func FloatAttr(name string, v float32) *Attribute {
	return &Attribute{Name: name, Type: AttrFloat, Float: v}
}

// StringAttr makes a STRING attribute.
func StringAttr(name, v string) *Attribute {
	return &Attribute{Name: name, Type: AttrString, String: v}
}

// IntsAttr makes an INTS attribute.
func IntsAttr(name string, v []int64) *Attribute {
	return &Attribute{Name: name, Type: AttrInts, Ints: v}
}

// TensorAttr makes a TENSOR attribute.
func TensorAttr(name string, t *Tensor) *Attribute {
	return &Attribute{Name: name, Type: AttrTensor, Tensor: t}
}

// GraphAttr makes a GRAPH attribute.
func GraphAttr(name string, g *Graph) *Attribute {
	return &Attribute{Name: name, Type: AttrGraph, Graph: g}
}

// RefAttr makes an attribute with the value of the enclosing function's attribute ref.
func RefAttr(name string, t AttributeType, ref string) *Attribute {
	return &Attribute{Name: name, Type: t, RefName: ref}
}

// Subgraphs returns the graphs of a GRAPH or GRAPHS attribute, nil for other kinds.
func (a *Attribute) Subgraphs() []*Graph {
	if a.Graph != nil {
		return []*Graph{a.Graph}
	}
	return a.Graphs
}
