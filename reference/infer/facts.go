package infer

import (
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// Worlds is the number of assignments of numbers to symbolic dimensions that the analysis follows. World 0 has small
// numbers that a test can run with, world 1 other small ones, and world 2 large ones, about 1000.
const Worlds = 3

// proof is the world in which open dimensions are expressions; worlds is the number of worlds including it. Values that
// are equal there are equal for all sizes; see package term.
const (
	proof  = Worlds
	worlds = Worlds + 1
)

// MaxElements is the size up to which the elements of a tensor are followed.
const MaxElements = 1024

// Facts are the facts about the values of a model at the time of Analyze. They stay correct for values that later
// changes of the graph do not affect; later values are unknown. Facts may be read concurrently.
type Facts struct {
	facts     map[*onnx.Value]*fact
	symbols   []*symbol
	table     *term.Table
	opset     int64
	functions []*onnx.Function
	memos     map[any]any
}

// Memo returns the data that readers of the facts store under a key, whose type they declare. first creates it. It must
// not be called concurrently.
func (f *Facts) Memo(key any, first func() any) any {
	m, ok := f.memos[key]
	if !ok {
		if f.memos == nil {
			f.memos = map[any]any{}
		}
		m = first()
		f.memos[key] = m
	}
	return m
}

// Opset returns the standard opset that the model imports.
func (f *Facts) Opset() int64 { return f.opset }

// Functions returns the functions of the model.
func (f *Facts) Functions() []*onnx.Function { return f.functions }

// fact is the facts about one value. Its slices and tensors are shared between facts and never changed.
type fact struct {
	dtype onnx.DataType
	// shape is nil if even the rank is unknown; an unknown dimension is -1.
	shape [worlds][]int64
	val   [worlds]*reference.Tensor
	// follows classifies how known elements depend on open sizes.
	follows follows
	// same means that all worlds have the very same slices and tensors.
	same bool
}

var nothing = &fact{same: true}

func (f *Facts) of(v *onnx.Value) *fact {
	if v == nil {
		return nothing
	}
	if x := f.facts[v]; x != nil {
		return x
	}
	return nothing
}

// DataType returns the element type of v, onnx.Undefined if it is unknown.
func (f *Facts) DataType(v *onnx.Value) onnx.DataType { return f.of(v).dtype }

// Rank returns the number of dimensions of v; ok is false if it is unknown.
func (f *Facts) Rank(v *onnx.Value) (rank int, ok bool) {
	x := f.of(v)
	if x.shape[0] == nil {
		return 0, false
	}
	for _, s := range x.shape[1:] {
		if s == nil || len(s) != len(x.shape[0]) {
			return 0, false
		}
	}
	return len(x.shape[0]), true
}

// Shape returns the shape of v in one world; ok is false if a dimension is unknown there. Do not change the slice.
func (f *Facts) Shape(v *onnx.Value, world int) (shape []int64, ok bool) {
	if world < 0 || world >= Worlds {
		return nil, false
	}
	s := f.of(v).shape[world]
	return s, complete(s)
}

// Size returns a dimension of v in one world, -1 if it is unknown.
func (f *Facts) Size(v *onnx.Value, world, axis int) int64 {
	if s := f.of(v).shape[world]; axis >= 0 && axis < len(s) {
		return s[axis]
	}
	return -1
}

// Dim returns a dimension of v if it is known and proven to be the same number for all sizes, even if other dimensions
// of v are unknown. The axis may be negative.
func (f *Facts) Dim(v *onnx.Value, axis int) (dim int64, ok bool) {
	rank, ok := f.Rank(v)
	if !ok {
		return 0, false
	}
	if axis < 0 {
		axis += rank
	}
	if axis < 0 || axis >= rank {
		return 0, false
	}
	x := f.of(v)
	d := x.shape[0][axis]
	for _, s := range x.shape[1:] {
		if s[axis] != d {
			return 0, false
		}
	}
	return d, d >= 0
}

// SameShape reports whether the shapes of a and b are known and proven to be equal for all sizes.
func (f *Facts) SameShape(a, b *onnx.Value) bool {
	x, y := f.of(a), f.of(b)
	for w := range worlds {
		if !complete(x.shape[w]) || y.shape[w] == nil || !slices.Equal(x.shape[w], y.shape[w]) {
			return false
		}
	}
	return true
}

// SameDim reports whether a dimension of a and one of b are known and proven to be equal for all sizes. Axes may be
// negative.
func (f *Facts) SameDim(a *onnx.Value, axisA int, b *onnx.Value, axisB int) bool {
	x, y := f.of(a), f.of(b)
	for w := range worlds {
		i, ok1 := axis(int64(axisA), len(x.shape[w]))
		k, ok2 := axis(int64(axisB), len(y.shape[w]))
		if !ok1 || !ok2 || x.shape[w][i] < 0 || x.shape[w][i] != y.shape[w][k] {
			return false
		}
	}
	return true
}

// WriteShape writes the known shape of v; shapes that are proven to be equal have the same text.
func (f *Facts) WriteShape(w io.Writer, v *onnx.Value) {
	b := make([]byte, 0, 128)
	for _, shape := range f.of(v).shape {
		if b = append(b, '['); shape == nil {
			b = append(b, '?')
		}
		for _, d := range shape {
			b = append(strconv.AppendInt(b, d, 10), ' ')
		}
	}
	w.Write(b)
}

// Known returns the elements of v in one world: of a small constant, or of a value computed only from constants and
// shapes.
func (f *Facts) Known(v *onnx.Value, world int) (*reference.Tensor, bool) {
	if world < 0 || world >= Worlds {
		return nil, false
	}
	t := f.of(v).val[world]
	return t, t != nil
}

// Constant returns the elements of v if they are known and proven to be the same for all sizes.
func (f *Facts) Constant(v *onnx.Value) (*reference.Tensor, bool) {
	x := f.of(v)
	t := x.val[0]
	if t == nil {
		return nil, false
	}
	for _, u := range x.val[1:] {
		if u != t && (u == nil || !equalTensors(t, u)) {
			return nil, false
		}
	}
	return t, true
}

// equalTensors compares type, shape and elements; a NaN equals a NaN.
func equalTensors(a, b *reference.Tensor) bool {
	return a.DataType == b.DataType && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.I, b.I) &&
		slices.Equal(a.S, b.S) &&
		slices.EqualFunc(a.F, b.F, func(x, y float64) bool {
			return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
		})
}

// complete reports whether the rank and every dimension are known.
func complete(s []int64) bool {
	return s != nil && !slices.Contains(s, -1)
}

// product multiplies dimensions. It returns -1 if one is unknown or the product overflows.
func product(s []int64) int64 {
	if slices.Contains(s, 0) {
		return 0
	}
	n := int64(1)
	for _, d := range s {
		if d < 0 || n > math.MaxInt64/16/d {
			return -1
		}
		n *= d
	}
	return n
}
