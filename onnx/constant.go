package onnx

import "github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"

// constantNodeTensor returns the value of a Constant node, nil if it is sparse or taken from a function's attribute.
func constantNodeTensor(n *Node) *Tensor {
	for _, a := range n.Attributes {
		if a.RefName != "" {
			return nil
		}
		if t := a.Constant(a.Name); t != nil {
			return t
		}
	}
	return nil
}

// Constant returns the value of a Constant node with attribute a under this name. It returns nil for other names and
// sparse values.
func (a *Attribute) Constant(name string) *Tensor {
	switch name {
	case "value":
		return a.Tensor
	case "value_int":
		t := NewInt64s("", []int64{a.Int})
		t.Dims = []int64{}
		return t
	case "value_ints":
		return NewInt64s("", a.Ints)
	case "value_float":
		return NewFloat32s("", []int64{}, []float32{a.Float})
	case "value_floats":
		return NewFloat32s("", []int64{int64(len(a.Floats))}, a.Floats)
	case "value_string":
		return stringTensor([]int64{}, []string{a.String})
	case "value_strings":
		return stringTensor([]int64{int64(len(a.Strings))}, a.Strings)
	}
	return nil
}

func stringTensor(dims []int64, s []string) *Tensor {
	p := &onnxpb.TensorProto{}
	for _, x := range s {
		p.StringData = append(p.StringData, []byte(x))
	}
	return &Tensor{DataType: String, Dims: dims, proto: p}
}
