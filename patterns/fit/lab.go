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

// values are tensors by what they stand for in the graph.
type values = probe.Values

// lab runs regions of a graph without roundings, in the first world of shape inference: every value has the shape there
// that it is known to have.
type lab struct {
	probe.Lab
	g *match.View
}

// world is the one that regions are run in.
const world = 0

// maxRunElements bounds the elements of a region's operands, maxSideElements those of what it reads besides.
const (
	maxRunElements  = 1 << 18
	maxSideElements = 1 << 16
)

func newLab(g *match.View, budget *match.Budget) *lab {
	return &lab{Lab: probe.NewLab(g, 4*maxNodes, budget), g: g}
}

// shape returns the shape that a value has when it is run.
func (l *lab) shape(v *onnx.Value) ([]int, bool) {
	dims, ok := l.g.Facts.Shape(v, world)
	return match.As[int](dims), ok
}

// tensor makes a tensor for a value of these elements, in row-major order.
func (l *lab) tensor(v *onnx.Value, elements []float64) *reference.Tensor {
	shape, _ := l.shape(v)
	return l.sized(v, shape, elements)
}

// run evaluates the wanted values, from those given.
func (l *lab) run(env values, want ...*onnx.Value) ([][]float64, error) {
	resized := false
	for v, t := range env {
		if shape, ok := l.shape(v); ok && !slices.Equal(shape, t.Shape) {
			resized = true
		}
	}
	made, err := l.Run(env, func(v *onnx.Value) *reference.Tensor { return l.known(v, resized) }, nil, want...)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(want))
	for i, t := range made {
		if t, err = t.Dense(); err != nil {
			return nil, err
		}
		out[i] = t.F
	}
	return out, nil
}

// known is what a value is in all runs: numbers that are cast have the precision of their type, shapes follow from the
// world, but where tensors are resized, and a weight that the model is given gets some elements.
func (l *lab) known(v *onnx.Value, resized bool) *reference.Tensor {
	n := v.Producer
	switch {
	case n == nil || n.Graph != l.g.Graph:
		return l.vector(v)
	case n.Is("Cast"):
		if t, ok := l.g.Facts.Constant(v); ok && t.Len() == 1 { // more are weights
			return t
		}
	case !resized && (n.Is("Shape") || n.Is("Size")):
		if t, ok := l.g.Facts.Known(v, world); ok {
			return t
		}
	}
	return nil
}

// vector gives a weight that the model is given some elements; nil for other values.
func (l *lab) vector(v *onnx.Value) *reference.Tensor {
	shape, ok := l.shape(v)
	if !ok || len(shape) == 0 || match.Elements(shape) != slices.Max(shape) || !l.g.Facts.DataType(v).IsFloat() {
		return nil
	}
	list := random(match.Elements(shape), 41)
	for i, x := range list {
		list[i] = 1 + math.Abs(x)
	}
	return l.tensor(v, list)
}

// random returns numbers of normal distribution, the same ones for the same seed.
func random(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]float64, n)
	for i := range list {
		list[i] = r.NormFloat64()
	}
	return list
}

// times returns the numbers of a list times another one.
func times(list []float64, x float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = x * list[i]
	}
	return out
}

// tolerance is what a result may differ by from the op's, as a part of the greatest magnitude of its row: exporters
// store constants in float32.
const tolerance = 1e-6

// near reports whether two lists agree within the tolerance, as a part of a magnitude. What is no number agrees with
// nothing.
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
