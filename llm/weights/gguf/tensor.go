package gguf

import "github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"

// ErrClosed is returned when elements are asked for after File.Close.
var ErrClosed = tensors.ErrClosed

// Tensor is one tensor of a file: its name, its dimensions (which the file lists innermost first), and what reads its
// elements. Bytes returns them one by one in little-endian order as the type of ONNX that Type.DataType names, or in
// blocks of Type; see the package comment for how Float32 converts each.
type Tensor struct {
	tensors.Tensor
	Type Type
}
