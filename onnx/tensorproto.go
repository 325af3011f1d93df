package onnx

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// UnmarshalTensor decodes one serialized TensorProto, the format of the .pb files in test_data_set folders. It returns
// an error for external data, which it cannot reach.
func UnmarshalTensor(b []byte) (*Tensor, error) {
	p := &onnxpb.TensorProto{}
	if err := proto.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("not a TensorProto: %w", err)
	}
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		return nil, fmt.Errorf("tensor %q is in an external file, which a TensorProto without a model cannot refer "+
			"to", p.GetName())
	}
	d := &decoder{}
	return d.tensor(p)
}

// MarshalTensor encodes the tensor as one TensorProto with raw_data (string_data for strings).
func MarshalTensor(t *Tensor) ([]byte, error) {
	p := &onnxpb.TensorProto{Name: ptr(t.Name), DataType: ptr(int32(t.DataType)), Dims: t.Dims}
	if t.DataType == String {
		for _, s := range t.Strings() {
			p.StringData = append(p.StringData, []byte(s))
		}
	} else {
		b, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		p.RawData = b
	}
	return proto.Marshal(p)
}

// NewStrings makes a string tensor. It returns an error if the number of strings does not fit dims.
func NewStrings(name string, dims []int64, s []string) (*Tensor, error) {
	n, err := elementCount(dims)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if n != int64(len(s)) {
		return nil, fmt.Errorf("tensor %q: the shape %v has %d elements, got %d strings", name, dims, n, len(s))
	}
	t := stringTensor(dims, s)
	t.Name = name
	return t, nil
}
