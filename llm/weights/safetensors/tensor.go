package safetensors

import "github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"

// ErrClosed is returned when elements are asked for after File.Close.
var ErrClosed = tensors.ErrClosed

// Tensor is one tensor of a file: its name, its dimensions, and what reads its elements.
type Tensor struct {
	tensors.Tensor
	Type Type
}
