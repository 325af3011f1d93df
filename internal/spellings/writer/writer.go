// Package writer writes the nodes of a block: values, constants, axes, channels, activations, and functions by
// identities of algebra, each in one of its possible spellings.
package writer

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Writer writes one model. Its choices depend only on its random numbers.
type Writer struct {
	Rand   *rand.Rand
	Model  *onnx.Model
	Graph  *onnx.Graph // the graph to write to: the main graph, or the block's
	Opset  int64
	Type   onnx.DataType // of activations and weights
	Place  Place
	Symbol bool // leading dimensions have names, not numbers
	Square bool // all dimensions are one number, so that wrong axes still run
	Routed bool // the block sends tokens to experts
	Alone  bool // nothing is computed twice or read by others
	Empty  bool // tensors may have no rows, so that no number of channels can be inferred

	Change  string        // the edit that changes the meaning, or ""
	Offered []string      // the edits that could have been made
	Smaller bool          // a smaller block of the kind is left inside
	Bare    []*onnx.Value // inputs without detours

	nest nest
}

// NewRand returns the random numbers of a kind and a seed for one purpose.
func NewRand(kind string, seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(kind + "/" + purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// New returns the writer of a model for a kind and a seed. It draws the opset, the type and the place.
func New(kind string, seed uint64, minOpset int64) *Writer {
	w := &Writer{Rand: NewRand(kind, seed, "block")}
	newest := int64(23)
	if minOpset > newest {
		newest = 28
	}
	w.Opset = minOpset + w.Rand.Int64N(newest+1-minOpset)
	w.Type = []onnx.DataType{onnx.Float, onnx.Float, onnx.Float16, onnx.BFloat16}[w.Rand.IntN(4)]
	w.Model = onnx.New(10, w.Opset)
	w.Graph = w.Model.Graph
	w.Place = Place(w.Rand.IntN(int(places) + 4)) // most blocks are in the main graph
	if w.Place >= places {
		w.Place = MainGraph
	}
	w.Square = w.Rand.IntN(4) == 0
	w.Symbol = !w.Square && w.Rand.IntN(3) > 0
	return w
}

// Wrong offers an edit that changes the meaning of the block, and reports whether to make it.
func (w *Writer) Wrong(name string) bool {
	if !slices.Contains(w.Offered, name) {
		w.Offered = append(w.Offered, name)
	}
	return w.Change == name
}

// Outside is wrong for an edit that leaves a smaller block of the kind inside, such as a norm without weights.
func (w *Writer) Outside(name string) bool {
	w.Smaller = w.Smaller || w.Change == name
	return w.Wrong(name)
}

// Chance is true once in n times.
func (w *Writer) Chance(n int) bool { return w.Rand.IntN(n) == 0 }

// Choose draws one of several.
func Choose[T any](w *Writer, xs ...T) T { return xs[w.Rand.IntN(len(xs))] }

// Op writes a node with one output. Inputs are values (nil for omitted ones); everything else is an attribute.
func (w *Writer) Op(opType string, args ...any) *onnx.Value {
	return w.Ops(opType, 1, args...)[0]
}

// Ops writes a node with several outputs.
func (w *Writer) Ops(opType string, outputs int, args ...any) []*onnx.Value {
	var in []*onnx.Value
	var attrs []*onnx.Attribute
	for _, a := range args {
		switch a := a.(type) {
		case *onnx.Value:
			in = append(in, a)
		case *onnx.Attribute:
			attrs = append(attrs, a)
		}
	}
	out := make([]*onnx.Value, outputs)
	for i := range out {
		out[i] = w.Graph.NewValue(w.name(opType))
	}
	w.Graph.AddNode(opType, in, out, attrs...)
	return out
}

// name keeps names unique in the model: inner graphs made in memory have separate name spaces.
func (w *Writer) name(hint string) string {
	if w.Graph != w.Model.Graph {
		hint = "inner_" + hint
	}
	return hint
}

// Omitted is a missing optional input.
var Omitted *onnx.Value

// Constant writes a constant as an initializer, a Constant node, or another form that its type allows. Functions have
// no initializers.
func (w *Writer) Constant(t *onnx.Tensor) *onnx.Value {
	form := w.Rand.IntN(4)
	switch {
	case form == 0 && t.DataType == onnx.Int64 && len(t.Dims) == 1:
		x, _ := reference.FromONNX(t)
		return w.Op("Constant", onnx.IntsAttr("value_ints", x.I))
	case form == 0 && t.DataType == onnx.Float && len(t.Dims) == 0:
		x, _ := reference.FromONNX(t)
		return w.Op("Constant", onnx.FloatAttr("value_float", float32(x.F[0])))
	case form <= 1 || w.Place == inFunction && w.Graph != w.Model.Graph:
		return w.Op("Constant", onnx.TensorAttr("value", t))
	}
	t.Name = w.name("c")
	return w.Graph.AddInitializer(t)
}

// Floats writes a constant of a float type.
func (w *Writer) Floats(t onnx.DataType, dims []int, v []float64) *onnx.Value {
	return w.Constant(Tensor(t, dims, v))
}

// Tensor makes a tensor of a float type.
func Tensor(t onnx.DataType, dims []int, v []float64) *onnx.Tensor {
	x := reference.NewFloats(t, dims, v)
	c, err := x.ToONNX("c")
	if err != nil {
		panic(err) // callers only pass float types
	}
	return c
}

// Scalar writes a constant of one element, without axes or with one.
func (w *Writer) Scalar(t onnx.DataType, x float64) *onnx.Value {
	if w.Chance(12) && t != onnx.Double { // computed: cast from a wider constant
		c := Must(reference.FromONNX(Tensor(t, []int{}, []float64{x})))
		return w.Cast(w.Scalar(onnx.Double, c.F[0]), t)
	}
	return w.Floats(t, Choose(w, []int{}, []int{}, []int{1}), []float64{x})
}

// Ints writes a constant list of int64.
func (w *Writer) Ints(v ...int64) *onnx.Value { return w.Constant(onnx.NewInt64s("c", v)) }

// Cast writes a Cast to a type.
func (w *Writer) Cast(v *onnx.Value, t onnx.DataType) *onnx.Value {
	return w.Op("Cast", v, onnx.IntAttr("to", int64(t)))
}

// Product multiplies in any order and nesting.
func (w *Writer) Product(factors ...*onnx.Value) *onnx.Value {
	f := slices.Clone(factors)
	w.Rand.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	for len(f) > 1 {
		i := w.Rand.IntN(len(f) - 1)
		f[i] = w.Op("Mul", f[i], f[i+1])
		f = slices.Delete(f, i+1, i+2)
	}
	return f[0]
}

// Sum adds two values in any order.
func (w *Writer) Sum(a, b *onnx.Value) *onnx.Value {
	if w.Chance(2) {
		a, b = b, a
	}
	return w.Op(Choose(w, "Add", "Add", "Add", "Sum"), a, b)
}

// Half reports whether activations are of a 16-bit type.
func (w *Writer) Half() bool { return w.Type != onnx.Float }
