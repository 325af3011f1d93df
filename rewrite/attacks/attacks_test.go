// Package attacks_test tries graphs that look like a block and compute something else for some inputs or sizes. A
// patched model must compute the same as the graph for these too.
package attacks_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// attack is a graph that equals a block for most inputs and sizes.
type attack struct {
	name string
	// write adds the inputs and the nodes: only the block's or, if b.twisted is set, nodes that differ
	// somewhere.
	write func(b *maker)
	at    trial // sizes and inputs that make them differ
	// near means that the block differs by less than 1e-4 of the largest magnitude.
	near bool
	// same means that nothing differs anywhere: the fused op must be correct in the trial.
	same bool
	// unlike means that no pattern finds the plain block.
	unlike bool
	// fails means that a kernel may fail there, because dimension names promise something false.
	fails bool
}

// trial has the sizes of the open dimensions (default: 2 for batch and 3 for others) and the elements of inputs
// (default: normally distributed).
type trial struct {
	sizes map[string]int
	fill  map[string]func(i int) float64
	// shapes has shapes of inputs that contradict their declarations.
	shapes map[string][]int
}

func filled(x ...float64) func(i int) float64 { return func(i int) float64 { return x[i%len(x)] } }

// maker writes a graph.
type maker struct {
	*onnxtest.Builder
	twisted bool
	typ     onnx.DataType
	seed    uint64
}

func (b *maker) input(name string, dims ...any) *onnx.Value { return b.Input(name, b.typ, dims...) }

// or returns other in a twisted graph, and block in the plain one.
func (b *maker) or(other, block *onnx.Value) *onnx.Value {
	if b.twisted {
		return other
	}
	return block
}

// number returns a constant of the graph's type.
func (b *maker) number(x float64) *onnx.Value {
	t, err := reference.NewFloats(b.typ, []int{}, []float64{x}).ToONNX("number")
	if err != nil {
		panic(err)
	}
	return b.Constant(t)
}

// weight returns a constant of numbers between 0.5 and 1.5, or normally distributed ones for a matrix.
func (b *maker) weight(dims ...int) *onnx.Value {
	b.seed++
	r := rand.New(rand.NewPCG(b.seed, 1))
	list, sizes := []float32{}, make([]int64, len(dims))
	for i, d := range dims {
		sizes[i] = int64(d)
	}
	for range sizeOf(dims) {
		if x := float32(r.NormFloat64()); len(dims) > 1 {
			list = append(list, x/2)
		} else {
			list = append(list, 0.75+x*x/8)
		}
	}
	w := b.Floats(sizes, list...)
	if b.typ != onnx.Float {
		w = b.Op("Cast", w, onnx.IntAttr("to", int64(b.typ)))
	}
	return w
}

func sizeOf(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func (b *maker) size(x *onnx.Value, axis int) *onnx.Value {
	return b.Op("Gather", b.Op("Shape", x), axis)
}

// longer returns yes if an axis is longer than a limit, and no otherwise.
func (b *maker) longer(x *onnx.Value, axis, limit int, yes, no float64) *onnx.Value {
	return b.Op("Where", b.Op("Greater", b.size(x, axis), limit), b.number(yes), b.number(no))
}

func (b *maker) cast(x *onnx.Value, t onnx.DataType) *onnx.Value {
	return b.Op("Cast", x, onnx.IntAttr("to", int64(t)))
}

func last() *onnx.Attribute { return onnx.IntAttr("axis", -1) }

// run writes the model and evaluates it.
func (a *attack) run(t *testing.T) {
	library, kernels := orttest.Library(t), orttest.Kernels(t)
	a.same = a.same || a.at.shapes != nil
	block, twisted := a.model(false), a.model(true)
	usual := trial{}
	x, y := evaluate(t, block, usual), evaluate(t, twisted, usual)
	if d := difference(x, y); d > 1e-5 {
		t.Fatalf("the graph is not the block: they differ by %g", d)
	}
	x, z := evaluate(t, block, a.at), evaluate(t, twisted, a.at)
	if d := difference(x, z); !a.same && (d < 1e-4 && !a.near || d == 0) {
		t.Fatal("the graph is the block everywhere")
	}
	if !found(t, block) && !a.unlike {
		t.Error("the block alone is not found")
	}
	patched := a.model(true)
	before := encoded(t, patched)
	patch(t, patched)
	unchanged := encoded(t, patched) == before // so its results are the graph's
	graph, err := session(t, twisted, library, "")
	if err != nil {
		t.Fatalf("the graph does not run: %v", err)
	}
	defer graph.Close()
	var fused *ort.Session
	var refused error
	if !unchanged {
		if fused, refused = session(t, patched, library, kernels); refused == nil {
			defer fused.Close()
		}
	}
	for i, at := range []trial{usual, a.at} {
		want, err := ran(t, graph, twisted, at)
		if err != nil {
			t.Fatalf("the graph does not run: %v", err)
		}
		if unchanged {
			continue
		}
		if d := difference([][][]float64{y, z}[i], evaluate(t, patched, at)); d > 1e-5 {
			t.Errorf("the patched model differs by %g at %v: %s", d, at.sizes, ops(patched))
		}
		got, err := [][]float64(nil), refused
		if err == nil {
			got, err = ran(t, fused, patched, at)
		}
		if err != nil && a.fails && at.shapes != nil {
			continue
		}
		if err != nil {
			t.Errorf("the patched model does not run at %v: %v", at.sizes, err)
		} else if d := difference(want, got); d > 1e-5 {
			t.Errorf("with kernels, the patched model differs by %g at %v: %s", d, at.sizes, ops(patched))
		}
	}
}

// encoded returns the bytes of a model.
func encoded(t *testing.T, m *onnx.Model) string {
	t.Helper()
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// foundBlocks holds the results of found by the bytes of models: many attacks are on the same block.
var foundBlocks sync.Map

// found reports whether anything is fused in a plain block.
func found(t *testing.T, block *onnx.Model) bool {
	t.Helper()
	key := encoded(t, block)
	known, ok := foundBlocks.Load(key)
	if !ok {
		known = patch(t, block)
		foundBlocks.Store(key, known)
	}
	return known.(bool)
}

func (a *attack) model(twisted bool) *onnx.Model {
	b := &maker{Builder: onnxtest.New(20), twisted: twisted, typ: onnx.Float}
	b.Model.IRVersion = 8
	a.write(b)
	return b.Model
}

// patch reports whether anything was fused.
func patch(t *testing.T, m *onnx.Model) bool {
	t.Helper()
	r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(r.Sites, func(s rewrite.SiteReport) bool { return s.Status == rewrite.Fused })
}

// ops lists the fused ops of a model.
func ops(m *onnx.Model) string {
	count := map[string]int{}
	for _, n := range m.Graph.Nodes {
		if n.Domain == "mojo" {
			count[n.OpType]++
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(count)))
}

// inputs returns the inputs of a model.
func inputs(m *onnx.Model, at trial) map[string]*reference.Tensor {
	given := map[string]*reference.Tensor{}
	for k, v := range m.Graph.Inputs {
		t, _ := v.Type()
		shape := make([]int, len(t.Dims))
		for i, d := range t.Dims {
			shape[i] = int(d.Value)
			if d.Value < 0 {
				shape[i] = 3
				if d.Param == "batch" {
					shape[i] = 2
				}
				if n, ok := at.sizes[d.Param]; ok {
					shape[i] = n
				}
			}
		}
		if s, ok := at.shapes[v.Name]; ok {
			shape = s
		}
		n := sizeOf(shape)
		r := rand.New(rand.NewPCG(uint64(k)+1, 7))
		list := make([]float64, n)
		for i := range list {
			list[i] = float64(float32(r.NormFloat64()))
			if fill := at.fill[v.Name]; fill != nil {
				list[i] = fill(i)
			}
		}
		switch {
		case t.DataType.IsFloat():
			given[v.Name] = reference.NewFloats(t.DataType, shape, rounded(t.DataType, list))
		default:
			ints := make([]int64, n)
			for i, x := range list {
				ints[i] = int64(math.Abs(x))
			}
			given[v.Name] = reference.NewInts(t.DataType, shape, ints)
		}
	}
	return given
}

func rounded(t onnx.DataType, list []float64) []float64 {
	b := onnxtest.New(20)
	cast := b.Op("Cast", b.Input("x", onnx.Double, "n"), onnx.IntAttr("to", int64(t))).Producer
	out, err := reference.NewForOpset(20, nil, reference.Options{}).Op(cast,
		[]*reference.Tensor{reference.NewFloats(onnx.Double, []int{len(list)}, list)})
	if err != nil {
		panic(err)
	}
	return out[0].F
}

func evaluate(t *testing.T, m *onnx.Model, at trial) [][]float64 {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(inputs(m, at))
	if err != nil {
		t.Fatal(err)
	}
	var list [][]float64
	for _, v := range m.Graph.Outputs {
		list = append(list, out[v.Name].Floats())
	}
	return list
}

// session opens a model in onnxruntime.
func session(t *testing.T, m *onnx.Model, library, kernels string) (*ort.Session, error) {
	t.Helper()
	options := []ort.Option{ort.WithLibrary(library), orttest.Provider()}
	if kernels != "" {
		options = append(options, ort.WithKernelLibrary(kernels))
	}
	return ort.OpenBytes([]byte(encoded(t, m)), "", options...)
}

// ran returns the outputs of a model in its session.
func ran(t *testing.T, s *ort.Session, m *onnx.Model, at trial) ([][]float64, error) {
	t.Helper()
	var given []*onnx.Tensor
	for name, x := range inputs(m, at) {
		v, err := x.ToONNX(name)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, v)
	}
	out, err := s.Run(given)
	if err != nil {
		return nil, err
	}
	var list [][]float64
	for _, o := range out {
		r, err := reference.FromONNX(o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r.Floats())
	}
	return list, nil
}

// difference returns the largest difference of two lists of outputs, relative to the largest magnitude of each output.
// It is infinite if only one has a number somewhere.
func difference(a, b [][]float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	most := 0.0
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return math.Inf(1)
		}
		magnitude := 0.0
		for _, x := range a[i] {
			if x-x == 0 {
				magnitude = max(magnitude, math.Abs(x))
			}
		}
		for k, x := range a[i] {
			switch y := b[i][k]; {
			case x == y || x != x && y != y:
			case x-x != 0 || y-y != 0:
				return math.Inf(1)
			default:
				most = max(most, math.Abs(x-y)/magnitude)
			}
		}
	}
	return most
}
