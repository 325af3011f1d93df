package reference

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/products"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/shapes"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// Tensor is a dense tensor in row-major order, or one whose elements are read on demand. Tensors are immutable once
// made: ops share their slices.
type Tensor = tensor.Tensor

// ErrUnsupported is wrapped by errors about ops that the evaluator lacks.
var ErrUnsupported = op.ErrUnsupported

// NewFloats makes a tensor of a floating-point type; the values must be representable in it.
func NewFloats(t onnx.DataType, shape []int, v []float64) *Tensor {
	return tensor.NewFloats(t, shape, v)
}

// NewInts makes a tensor of an integer type or bool.
func NewInts(t onnx.DataType, shape []int, v []int64) *Tensor { return tensor.NewInts(t, shape, v) }

// NewLazy makes a tensor of a floating-point type whose elements are read on demand, by their offset in row-major
// order. The values of read must be representable in the type, and the same each time.
func NewLazy(t onnx.DataType, shape []int, read func(dst []float64, offset int) error) (*Tensor, error) {
	return tensor.NewLazy(t, shape, read)
}

// FromONNX decodes the elements of a tensor. It returns an error for complex and 6-bit types.
func FromONNX(t *onnx.Tensor) (*Tensor, error) { return tensor.FromONNX(t) }

// LazyFromONNX is FromONNX for a float tensor whose elements are decoded on demand. It decodes a small tensor at once.
func LazyFromONNX(t *onnx.Tensor) (*Tensor, error) { return tensor.LazyFromONNX(t) }

// Deferred is LazyFromONNX without reading anything before an op reads elements, even of a small tensor.
func Deferred(t *onnx.Tensor) (*Tensor, error) { return tensor.Deferred(t) }

// ShapeRange returns the range of dimensions that a Shape node with these attributes returns.
func ShapeRange(start, end, rank int64) (from, to int64) { return shapes.ShapeRange(start, end, rank) }

// SliceLength returns the number of elements that Slice takes for start:end:step of a dimension of d elements.
func SliceLength(start, end, step, d int64) int64 { return shapes.SliceLength(start, end, step, d) }

// EinsumOutput returns the right side of an Einsum equation that lacks one: the labels that occur once, in alphabetical
// order, after the broadcast dimensions.
func EinsumOutput(lhs string) string { return products.EinsumOutput(lhs) }

// ExtendedCausalConv returns the first attribute by which a CausalConvWithState of onnxruntime computes something else
// than the standard's op, and its value. The name is empty if there is none. attribute reads an int of the node.
func ExtendedCausalConv(attribute func(name string, def int64) int64) (name string, value int64) {
	return products.ExtendedCausalConv(attribute)
}
