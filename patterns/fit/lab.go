package fit

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// values are tensors by what they stand for in the graph.
type values = map[*onnx.Value]*reference.Tensor

// lab runs regions of a graph without roundings, in the first world of shape inference: every value has the shape there
// that it is known to have.
type lab struct {
	g    *match.View
	eval *reference.Evaluator
	work int // elements that nodes made in all runs so far
}

// world is the one that regions are run in.
const world = 0

// maxRunElements bounds the elements of a region's operands, maxSideElements those of what it reads besides. Beyond
// maxWork, half a second, no more regions of a graph are read: models of images have many large ones, and no blocks.
const (
	maxRunElements  = 1 << 18
	maxSideElements = 1 << 16
	maxWork         = 1 << 25
)

func newLab(g *match.View) *lab {
	return &lab{g: g, eval: reference.NewForOpset(g.Facts.Opset(), g.Facts.Functions(),
		reference.Options{Exact: true})}
}

// shape returns the shape that a value has when it is run.
func (l *lab) shape(v *onnx.Value) ([]int, bool) {
	dims, ok := l.g.Facts.Shape(v, world)
	return match.As[int](dims), ok
}

// tensor makes a tensor for a value of these elements, in row-major order.
func (l *lab) tensor(v *onnx.Value, elements []float64) *reference.Tensor {
	shape, _ := l.shape(v)
	return reference.NewFloats(l.g.Facts.DataType(v), shape, elements)
}

// run evaluates the wanted values, from those given.
func (l *lab) run(env values, want ...*onnx.Value) ([][]float64, error) {
	r := &run{lab: l, env: make(values, len(env)+16), made: map[*onnx.Node]bool{}}
	maps.Copy(r.env, env)
	part := 1.0
	for v, t := range env {
		if shape, ok := l.shape(v); ok && !slices.Equal(shape, t.Shape) {
			r.resized, part = true, float64(t.Len())/float64(match.Elements(shape))
		}
	}
	for _, v := range want {
		if err := r.need(v); err != nil {
			return nil, err
		}
	}
	for _, n := range r.nodes {
		if shape, ok := l.shape(n.Outputs[0]); ok {
			l.work += 1 + int(part*float64(match.Elements(shape)))
		}
	}
	if _, err := l.eval.EvalFor(r.nodes, r.env, want); err != nil {
		return nil, err
	}
	out := make([][]float64, len(want))
	for i, v := range want {
		t := r.env[v]
		if t == nil {
			var err error
			if t, err = reference.FromONNX(v.Constant()); err != nil {
				return nil, err
			}
		}
		t, err := t.Dense()
		if err != nil {
			return nil, err
		}
		out[i] = t.F
	}
	return out, nil
}

// run is one evaluation.
type run struct {
	*lab
	env   values
	nodes []*onnx.Node
	made  map[*onnx.Node]bool
	// resized says that tensors have other shapes than shape inference knows.
	resized bool
}

// need adds the nodes that make v, in order.
func (r *run) need(v *onnx.Value) error {
	if v == nil || r.env[v] != nil || v.Constant() != nil {
		return nil
	}
	n := v.Producer
	switch {
	case n == nil || n.Graph != r.g.Graph:
		return r.vector(v)
	case r.made[n]:
		return nil
	case len(r.made) > 4*maxNodes:
		return fmt.Errorf("more than %d nodes", 4*maxNodes)
	}
	if !r.resized && (n.Is("Shape") || n.Is("Size")) {
		t, ok := r.g.Facts.Known(v, world)
		if !ok {
			return fmt.Errorf("%q is not known", v.Name)
		}
		r.env[v] = t
		return nil
	}
	if n.Is("Cast") { // of a number, which is that of its type in all runs
		if t, ok := r.g.Facts.Constant(v); ok {
			r.env[v] = t
			return nil
		}
	}
	r.made[n] = true
	for _, in := range r.g.Operands(n) {
		if err := r.need(in); err != nil {
			return err
		}
	}
	r.nodes = append(r.nodes, n)
	return nil
}

// vector gives a weight that the model is given some elements.
func (r *run) vector(v *onnx.Value) error {
	shape, ok := r.shape(v)
	if !ok || len(shape) == 0 || match.Elements(shape) != slices.Max(shape) || !r.g.Facts.DataType(v).IsFloat() {
		return fmt.Errorf("%q is not given", v.Name)
	}
	list := random(match.Elements(shape), 41)
	for i, x := range list {
		list[i] = 1 + math.Abs(x)
	}
	r.env[v] = r.tensor(v, list)
	return nil
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
