package onnx

import "github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"

// Value is one edge of a graph: a graph input, an initializer or an output of a node.
type Value struct {
	Name string
	// Producer is the node that writes the value; nil for graph inputs and initializers.
	Producer *Node
	// Output is the index of the value among the producer's outputs.
	Output int
	// Const holds the elements of an initializer, nil otherwise.
	Const *Tensor
	// IsInput reports that the value is an input of its graph. An input with a Const has a default that callers may
	// override, so it is not a constant.
	IsInput bool
	// Graph is the graph that defines the value.
	Graph *Graph

	uses    []Use
	outputs int // how often the value is an output of its graph or of a nested one
	info    *onnxpb.ValueInfoProto
	retyped bool // SetType changed info: other declarations of the value are out of date
}

// Use is one use of a value: input Index of Node.
type Use struct {
	Node  *Node
	Index int
}

// Uses lists the nodes that read the value, also those in subgraphs. A node that reads it twice is listed twice. Do not
// change the slice; it is valid until the graph changes.
func (v *Value) Uses() []Use { return v.uses }

// IsOutput reports whether the value is an output of its graph, or of a nested graph that passes it on.
func (v *Value) IsOutput() bool { return v.outputs > 0 }

// OutputUses returns how often the value is an output of its graph, or of a nested one.
func (v *Value) OutputUses() int { return v.outputs }

// IsConstant reports whether the value is an initializer that callers cannot override. It excludes outputs of Constant
// nodes; see Constant.
func (v *Value) IsConstant() bool { return v != nil && v.Const != nil && !v.IsInput }

// Constant returns the elements of an initializer or of a Constant node's value attribute, or nil.
// The other spellings of Constant (value_int, value_floats, …) are converted.
func (v *Value) Constant() *Tensor {
	if v == nil {
		return nil
	}
	if v.IsConstant() {
		return v.Const
	}
	if n := v.Producer; n != nil && n.Is("Constant") {
		return constantNodeTensor(n)
	}
	return nil
}

// Dim is one dimension of a declared shape: a number, a name, or neither.
type Dim struct {
	Value int64  // -1 if not a number
	Param string // symbolic name, may be empty
}

// Type is the declared tensor type of a value.
type Type struct {
	DataType DataType
	// HasShape reports that the rank is known; Dims is nil without it.
	HasShape bool
	Dims     []Dim
}

// TensorType returns the type of tensors with these dimensions.
func TensorType(t DataType, dims []int64) Type {
	typ := Type{DataType: t, HasShape: true}
	for _, d := range dims {
		typ.Dims = append(typ.Dims, Dim{Value: d})
	}
	return typ
}

// Type returns the declared type of the value (graph input or output, value_info). ok is false if no type is declared
// or the value is not a dense tensor.
func (v *Value) Type() (t Type, ok bool) {
	tt := v.info.GetType().GetTensorType()
	if tt == nil {
		return Type{}, false
	}
	t.DataType = DataType(tt.GetElemType())
	if tt.Shape != nil {
		t.HasShape = true
		t.Dims = make([]Dim, len(tt.Shape.Dim))
		for i, d := range tt.Shape.Dim {
			switch x := d.Value.(type) {
			case *onnxpb.TensorShapeProto_Dimension_DimValue:
				t.Dims[i] = Dim{Value: x.DimValue}
			case *onnxpb.TensorShapeProto_Dimension_DimParam:
				t.Dims[i] = Dim{Value: -1, Param: x.DimParam}
			default:
				t.Dims[i] = Dim{Value: -1}
			}
		}
	}
	return t, true
}

// SetType declares the type of the value.
func (v *Value) SetType(t Type) {
	tt := &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(t.DataType))}
	if t.HasShape {
		tt.Shape = &onnxpb.TensorShapeProto{}
		for _, d := range t.Dims {
			p := &onnxpb.TensorShapeProto_Dimension{}
			if d.Value >= 0 {
				p.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d.Value}
			} else if d.Param != "" {
				p.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d.Param}
			}
			tt.Shape.Dim = append(tt.Shape.Dim, p)
		}
	}
	if v.info == nil {
		v.info = &onnxpb.ValueInfoProto{Name: ptr(v.Name)}
	}
	v.retyped = true
	v.info.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tt}}
}

func ptr[T any](v T) *T { return &v }
