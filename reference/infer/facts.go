package infer

import (
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// Worlds is the number of assignments of numbers to symbolic dimensions that the analysis follows. World 0 has small
// numbers that a test can run with, world 1 other small ones, and world 2 large ones, about 1000.
const Worlds = rules.Worlds

// MaxElements is the size up to which the elements of a tensor are followed.
const MaxElements = rules.MaxElements

// Facts are the facts about the values of a model at the time of Analyze. They stay correct for values that later
// changes of the graph do not affect; later values are unknown. Facts may be read concurrently.
type Facts struct {
	facts     map[*onnx.Value]*rules.Fact
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

func (f *Facts) of(v *onnx.Value) *rules.Fact {
	if v == nil {
		return rules.Nothing
	}
	if x := f.facts[v]; x != nil {
		return x
	}
	return rules.Nothing
}

// DataType returns the element type of v, onnx.Undefined if it is unknown.
func (f *Facts) DataType(v *onnx.Value) onnx.DataType { return f.of(v).DataType }

// Rank returns the number of dimensions of v; ok is false if it is unknown.
func (f *Facts) Rank(v *onnx.Value) (rank int, ok bool) {
	x := f.of(v)
	if x.Shape[0] == nil {
		return 0, false
	}
	for _, s := range x.Shape[1:] {
		if s == nil || len(s) != len(x.Shape[0]) {
			return 0, false
		}
	}
	return len(x.Shape[0]), true
}

// Shape returns the shape of v in one world; ok is false if a dimension is unknown there. Do not change the slice.
func (f *Facts) Shape(v *onnx.Value, world int) (shape []int64, ok bool) {
	if world < 0 || world >= Worlds {
		return nil, false
	}
	s := f.of(v).Shape[world]
	return s, rules.Complete(s)
}

// Size returns a dimension of v in one world, -1 if it is unknown.
func (f *Facts) Size(v *onnx.Value, world, axis int) int64 {
	if s := f.of(v).Shape[world]; axis >= 0 && axis < len(s) {
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
	d := x.Shape[0][axis]
	for _, s := range x.Shape[1:] {
		if s[axis] != d {
			return 0, false
		}
	}
	return d, d >= 0
}

// SameShape reports whether the shapes of a and b are known and proven to be equal for all sizes.
func (f *Facts) SameShape(a, b *onnx.Value) bool {
	x, y := f.of(a), f.of(b)
	for w := range rules.AllWorlds {
		if !rules.Complete(x.Shape[w]) || y.Shape[w] == nil || !slices.Equal(x.Shape[w], y.Shape[w]) {
			return false
		}
	}
	return true
}

// SameDim reports whether a dimension of a and one of b are known and proven to be equal for all sizes. Axes may be
// negative.
func (f *Facts) SameDim(a *onnx.Value, axisA int, b *onnx.Value, axisB int) bool {
	x, y := f.of(a), f.of(b)
	for w := range rules.AllWorlds {
		i, ok1 := rules.Axis(int64(axisA), len(x.Shape[w]))
		k, ok2 := rules.Axis(int64(axisB), len(y.Shape[w]))
		if !ok1 || !ok2 || x.Shape[w][i] < 0 || x.Shape[w][i] != y.Shape[w][k] {
			return false
		}
	}
	return true
}

// MayDiffer reports whether two dimensions are not proven to be equal, and one of them is open but has the same number
// in all worlds: a graph that runs only with one size has only that size in the worlds, which then distinguish nothing.
func (f *Facts) MayDiffer(a *onnx.Value, axisA int, b *onnx.Value, axisB int) bool {
	return !f.SameDim(a, axisA, b, axisB) && (f.pinned(a, axisA) || f.pinned(b, axisB))
}

// pinned reports whether an open dimension has the same number in all worlds.
func (f *Facts) pinned(v *onnx.Value, axis int) bool {
	if _, fixed := f.Dim(v, axis); fixed {
		return false
	}
	n := f.Size(v, 0, axis)
	return f.Size(v, 1, axis) == n && f.Size(v, 2, axis) == n
}

// WriteShape writes the known shape of v; shapes that are proven to be equal have the same text.
func (f *Facts) WriteShape(w io.Writer, v *onnx.Value) {
	b := make([]byte, 0, 128)
	for _, shape := range f.of(v).Shape {
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
	t := f.of(v).Value[world]
	return t, t != nil
}

// Constant returns the elements of v if they are known and proven to be the same for all sizes.
func (f *Facts) Constant(v *onnx.Value) (*reference.Tensor, bool) {
	x := f.of(v)
	t := x.Value[0]
	if t == nil {
		return nil, false
	}
	for _, u := range x.Value[1:] {
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
