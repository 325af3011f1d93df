package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// values holds a tensor for each value of the graph.
type values = probe.Values

// maxRunElements bounds the elements of a region's operands, maxSideElements the elements of its other inputs.
const (
	maxRunElements  = 1 << 18
	maxSideElements = 1 << 16
)

// tensor makes a tensor for a value from elements in row-major order.
func (f *finder) tensor(v *onnx.Value, elements []float64) *reference.Tensor {
	shape, _ := f.lab.Shape(v)
	return f.sized(v, shape, elements)
}

// compute runs the region of a value on the given tensors and returns the elements of the value.
func (f *finder) compute(v *onnx.Value, given values) ([]float64, error) {
	resized := false
	for v, t := range given {
		if shape, ok := f.lab.Shape(v); ok && !slices.Equal(shape, t.Shape) {
			resized = true
		}
	}
	out, err := f.lab.Run(given, func(v *onnx.Value) (*reference.Tensor, error) { return f.known(v, resized), nil }, v)
	if err != nil {
		return nil, err
	}
	return out[0].F, nil
}

// known returns the values that are the same in all runs: cast numbers have the precision of their type, shapes follow
// from the world unless tensors are resized, and weights that are inputs get some elements.
func (f *finder) known(v *onnx.Value, resized bool) *reference.Tensor {
	n := v.Producer
	switch {
	case n == nil || n.Graph != f.g.Graph:
		return f.vector(v)
	case n.Is("Cast"):
		if t, ok := f.g.Facts.Constant(v); ok && t.Len() == 1 { // more are weights
			return t
		}
	case !resized && (n.Is("Shape") || n.Is("Size")):
		if t, ok := f.g.Facts.Known(v, f.lab.World); ok {
			return t
		}
	}
	return nil
}

// vector makes elements for a weight that is an input; nil for other values.
func (f *finder) vector(v *onnx.Value) *reference.Tensor {
	shape, ok := f.lab.Shape(v)
	if !ok || len(shape) == 0 || match.Elements(shape) != slices.Max(shape) || !f.g.Facts.DataType(v).IsFloat() {
		return nil
	}
	list := random(match.Elements(shape), 41)
	for i, x := range list {
		list[i] = 1 + math.Abs(x)
	}
	return f.tensor(v, list)
}

// random returns normally distributed numbers, the same for the same seed.
func random(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]float64, n)
	for i := range list {
		list[i] = r.NormFloat64()
	}
	return list
}

// times returns the elements of list times x.
func times(list []float64, x float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = x * list[i]
	}
	return out
}

// tolerance is the allowed difference between a result and the op's, relative to the greatest magnitude of its row:
// exporters store constants in float32.
const tolerance = 1e-6

// near reports whether two lists agree within the tolerance, relative to magnitude. NaN agrees with nothing.
func near(got, want []float64, magnitude float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= tolerance*magnitude) {
			return false
		}
	}
	return true
}
