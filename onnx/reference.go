package onnx

import "fmt"

// NewReference makes a tensor whose elements are in a file beside the model that may be missing. Write writes the
// reference, and Bytes returns ErrMissingData. So a graph can be written without weights. NewReference returns an error
// for a type or dims without a size, or if the length does not match them.
func NewReference(name string, t DataType, dims []int64, at External) (*Tensor, error) {
	n, err := byteSize(t, dims)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if at.Location == "" || at.Offset < 0 || at.Length != n {
		return nil, fmt.Errorf("tensor %q: %s%v takes %d bytes, but the reference is to %d at offset %d of %q", name, t,
			dims, n, at.Length, at.Offset, at.Location)
	}
	return &Tensor{Name: name, DataType: t, Dims: append([]int64{}, dims...), External: &at, reference: true}, nil
}
