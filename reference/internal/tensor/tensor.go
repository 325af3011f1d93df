// Package tensor has the values that ops compute with: dense tensors, lazy ones that are read on demand, and sequences;
// and what ops of several groups share, such as broadcasting, strided reads and products of matrices.
package tensor

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

// Tensor is a dense tensor in row-major order. Tensors are immutable once made: ops share their slices.
type Tensor struct {
	DataType onnx.DataType
	Shape    []int
	F        []float64 // elements of every floating-point type; nil for a lazy tensor, see Dense
	I        []int64   // elements of integers and bool (0, 1); uint64 as its bit pattern
	S        []string  // elements of strings

	lazy  *view     // instead of F: elements that are read on demand
	seq   []*Tensor // elements of a sequence
	isSeq bool
}

// IsFloatType reports whether elements of the type are in Tensor.F.
func IsFloatType(t onnx.DataType) bool {
	switch t {
	case onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16:
		return true
	}
	return elements.FormatOf(t) != nil
}

// IsIntType reports whether elements of the type are in Tensor.I.
func IsIntType(t onnx.DataType) bool {
	switch t {
	case onnx.Bool, onnx.Int4, onnx.Uint4, onnx.Int2, onnx.Uint2:
		return true
	}
	return t.IsInteger()
}

// IsFloat reports whether the elements are in F.
func (t *Tensor) IsFloat() bool { return IsFloatType(t.DataType) }

// Len returns the number of elements.
func (t *Tensor) Len() int { return Size(t.Shape) }

// Rank returns the number of dimensions.
func (t *Tensor) Rank() int { return len(t.Shape) }

// Dims returns the shape as int64 dimensions.
func (t *Tensor) Dims() []int64 { return ToInt64s(t.Shape) }

// String describes the tensor for messages, for example "float32[2 3]".
func (t *Tensor) String() string {
	if t == nil {
		return "none"
	}
	if t.isSeq {
		return fmt.Sprintf("sequence of %d", len(t.seq))
	}
	return fmt.Sprintf("%s%v", t.DataType, t.Shape)
}

// NewFloats makes a tensor of a floating-point type; the values must be representable in it.
func NewFloats(t onnx.DataType, shape []int, v []float64) *Tensor {
	return &Tensor{DataType: t, Shape: shape, F: v}
}

// NewInts makes a tensor of an integer type or bool.
func NewInts(t onnx.DataType, shape []int, v []int64) *Tensor {
	return &Tensor{DataType: t, Shape: shape, I: v}
}

// OfFloats makes a tensor of floats, or of integers by truncating them.
func OfFloats(t onnx.DataType, shape []int, v []float64) *Tensor {
	if IsFloatType(t) {
		return NewFloats(t, shape, v)
	}
	return NewInts(t, shape, MapSlice(v, Truncate))
}

// WithShape returns the same elements, shared, in another shape of the same size.
func (t *Tensor) WithShape(shape []int) *Tensor {
	if t.lazy != nil {
		v := t.lazy.reshape(shape)
		return &Tensor{DataType: t.DataType, Shape: shape, lazy: v}
	}
	return &Tensor{DataType: t.DataType, Shape: shape, F: t.F, I: t.I, S: t.S}
}

// WithType returns the same elements under another type of the same storage.
func WithType(t *Tensor, d onnx.DataType) *Tensor {
	return &Tensor{DataType: d, Shape: t.Shape, F: t.F, I: t.I, S: t.S, lazy: t.lazy}
}

// Floats returns the elements as floats, for any type except strings; none of a lazy tensor. They may be
// those of the tensor itself.
func (t *Tensor) Floats() []float64 {
	if t.F != nil || t.I == nil {
		return t.F
	}
	v := make([]float64, len(t.I))
	for i := range v {
		v[i] = FloatAt(t, i)
	}
	return v
}

// FloatAt returns element i of any type as a float.
func FloatAt(t *Tensor, i int) float64 {
	if t.IsFloat() {
		return t.F[i]
	}
	if t.DataType == onnx.Uint64 {
		return float64(uint64(t.I[i]))
	}
	return float64(t.I[i])
}

// CheckShape returns an error for a shape with negative dimensions or more than MaxElements elements, ignoring zeros.
func CheckShape(shape []int) error { return BoundShape(shape, MaxElements) }

// BoundShape is CheckShape for another greatest number of elements.
func BoundShape(shape []int, most int) error {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d > 0 && n > most/d {
			return fmt.Errorf("shape %v has more than %d elements", shape, most)
		}
		n *= max(d, 1)
	}
	return nil
}

// FromONNX decodes the elements of a tensor. It returns an error for complex and 6-bit types.
func FromONNX(t *onnx.Tensor) (*Tensor, error) {
	shape := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		if d < 0 || d > int64(maxStored) {
			return nil, fmt.Errorf("tensor %q has the shape %v", t.Name, t.Dims)
		}
		shape[i] = int(d)
	}
	if err := BoundShape(shape, maxStored); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	r := &Tensor{DataType: t.DataType, Shape: shape}
	if t.DataType == onnx.String {
		r.S = t.Strings()
		if len(r.S) != Size(shape) {
			return nil, fmt.Errorf("tensor %q: shape %v, but %d strings", t.Name, shape, len(r.S))
		}
		return r, nil
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	switch {
	case IsFloatType(t.DataType):
		r.F = make([]float64, Size(shape))
		elements.DecodeFloats(r.F, b, t.DataType)
	case IsIntType(t.DataType):
		r.I = make([]int64, Size(shape))
		elements.DecodeInts(r.I, b, t.DataType)
	default:
		return nil, fmt.Errorf("tensor %q: the built-in evaluator has no %s", t.Name, t.DataType)
	}
	return r, nil
}

// ToONNX encodes the elements. It rounds floats that their type cannot hold.
func (t *Tensor) ToONNX(name string) (*onnx.Tensor, error) {
	if t.isSeq {
		return nil, fmt.Errorf("value %q is a sequence, not a tensor", name)
	}
	dims := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = int64(d)
	}
	switch {
	case t.DataType == onnx.String:
		return onnx.NewStrings(name, dims, t.S)
	case IsFloatType(t.DataType):
		t, err := t.Dense()
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", name, err)
		}
		if len(t.F) != Size(t.Shape) {
			return nil, fmt.Errorf("value %q: shape %v, but %d elements", name, t.Shape, len(t.F))
		}
		return onnx.NewTensor(name, t.DataType, dims, elements.EncodeFloats(t.F, t.DataType))
	case IsIntType(t.DataType):
		if len(t.I) != Size(t.Shape) {
			return nil, fmt.Errorf("value %q: shape %v, but %d elements", name, t.Shape, len(t.I))
		}
		return onnx.NewTensor(name, t.DataType, dims, elements.EncodeInts(t.I, t.DataType))
	}
	return nil, fmt.Errorf("value %q: the built-in evaluator has no %s", name, t.DataType)
}

// ScalarF makes a float tensor of rank 0.
func ScalarF(t onnx.DataType, v float64) *Tensor {
	return &Tensor{DataType: t, Shape: []int{}, F: []float64{v}}
}

// Vector makes an int64 tensor of rank 1.
func Vector(v []int64) *Tensor { return NewInts(onnx.Int64, []int{len(v)}, v) }

// ZeroFloats makes a float tensor of zeros if the shape is within bounds.
func ZeroFloats(t onnx.DataType, shape []int) *Tensor {
	Check(CheckShape(shape))
	return &Tensor{DataType: t, Shape: shape, F: make([]float64, Size(shape))}
}

// ZeroInts is ZeroFloats for integers and bool.
func ZeroInts(t onnx.DataType, shape []int) *Tensor {
	Check(CheckShape(shape))
	return &Tensor{DataType: t, Shape: shape, I: make([]int64, Size(shape))}
}

// Footprint is the number of elements, for a sequence of all its tensors, plus a few for each tensor.
func Footprint(t *Tensor) int {
	if t == nil {
		return 0
	}
	if t.lazy != nil {
		return 16 + 8*len(t.lazy.blocks)
	}
	if !t.isSeq {
		return 16 + t.Len()
	}
	n := 16
	for _, x := range t.seq {
		n += Footprint(x)
	}
	return n
}

// Sequence makes a sequence of tensors.
func Sequence(s []*Tensor) *Tensor { return &Tensor{isSeq: true, seq: s} }

// IsSequence reports whether t is a sequence.
func IsSequence(t *Tensor) bool { return t.isSeq }

// Members returns the tensors of a sequence.
func Members(t *Tensor) []*Tensor { return t.seq }
