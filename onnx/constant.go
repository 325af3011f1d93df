package onnx

import (
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// constantNodeTensor returns the value of a Constant node in any of its spellings, nil for sparse ones and for values
// taken from a function's attribute.
func constantNodeTensor(n *Node) *Tensor {
	for _, a := range n.Attributes {
		if a.RefName != "" {
			return nil
		}
		switch a.Name {
		case "value":
			return a.Tensor
		case "value_int":
			return &Tensor{DataType: Int64, Dims: []int64{}, raw: binary.LittleEndian.AppendUint64(nil, uint64(a.Int))}
		case "value_ints":
			return NewInt64s("", a.Ints)
		case "value_float":
			return &Tensor{DataType: Float, Dims: []int64{},
				raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(a.Float))}
		case "value_floats":
			return NewFloat32s("", []int64{int64(len(a.Floats))}, a.Floats)
		case "value_string":
			return stringTensor([]int64{}, []string{a.String})
		case "value_strings":
			return stringTensor([]int64{int64(len(a.Strings))}, a.Strings)
		}
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
