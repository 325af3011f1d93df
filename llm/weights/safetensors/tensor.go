package safetensors

import "github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"

// ErrClosed is returned when elements are read after File.Close.
var ErrClosed = tensors.ErrClosed

// Tensor is one tensor of a file.
type Tensor struct {
	tensors.Tensor
	Type Type
}
