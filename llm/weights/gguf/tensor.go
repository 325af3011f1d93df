package gguf

import "github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"

// ErrClosed is returned when elements are read after File.Close.
var ErrClosed = tensors.ErrClosed

// Tensor is a tensor of a file. Its dimensions are outermost first, unlike in the file. Bytes returns the elements
// individually in little-endian order as the ONNX type Type.DataType, or in blocks of Type. See the package comment for
// the conversions of Float32.
type Tensor struct {
	tensors.Tensor
	Type Type
}
