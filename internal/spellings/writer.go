package spellings

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// writer writes one model. Its choices depend only on its random numbers.
type writer struct {
	r      *rand.Rand
	m      *onnx.Model
	g      *onnx.Graph // the graph to write to: the main graph, or the block's
	opset  int64
	typ    onnx.DataType // of activations and weights
	place  place
	symbol bool // leading dimensions have names, not numbers
	square bool // all dimensions are one number, so that wrong axes still run
	routed bool // the block sends tokens to experts
	alone  bool // nothing is computed twice or read by others
	empty  bool // tensors may have no rows, so that no number of channels can be inferred

	change  string        // the edit that changes the meaning, or ""
	offered []string      // the edits that could have been made
	smaller bool          // a smaller block of the kind is left inside
	bare    []*onnx.Value // inputs without detours

	nest nest
}

func newRand(kind string, seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(kind + "/" + purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func newWriter(kind string, seed uint64, minOpset int64) *writer {
	w := &writer{r: newRand(kind, seed, "block")}
	newest := int64(23)
	if minOpset > newest {
		newest = 28
	}
	w.opset = minOpset + w.r.Int64N(newest+1-minOpset)
	w.typ = []onnx.DataType{onnx.Float, onnx.Float, onnx.Float16, onnx.BFloat16}[w.r.IntN(4)]
	w.m = onnx.New(10, w.opset)
	w.g = w.m.Graph
	w.place = place(w.r.IntN(int(places) + 4)) // most blocks are in the main graph
	if w.place >= places {
		w.place = mainGraph
	}
	w.square = w.r.IntN(4) == 0
	w.symbol = !w.square && w.r.IntN(3) > 0
	return w
}

// wrong offers an edit that changes the meaning of the block, and reports whether to make it.
func (w *writer) wrong(name string) bool {
	if !slices.Contains(w.offered, name) {
		w.offered = append(w.offered, name)
	}
	return w.change == name
}

// outside is wrong for an edit that leaves a smaller block of the kind inside, such as a norm without weights.
func (w *writer) outside(name string) bool {
	w.smaller = w.smaller || w.change == name
	return w.wrong(name)
}

// chance is true once in n times.
func (w *writer) chance(n int) bool { return w.r.IntN(n) == 0 }

func choose[T any](w *writer, xs ...T) T { return xs[w.r.IntN(len(xs))] }

// op writes a node with one output. Inputs are values (nil for omitted ones); everything else is an attribute.
func (w *writer) op(opType string, args ...any) *onnx.Value {
	return w.ops(opType, 1, args...)[0]
}

// ops writes a node with several outputs.
func (w *writer) ops(opType string, outputs int, args ...any) []*onnx.Value {
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
		out[i] = w.g.NewValue(w.name(opType))
	}
	w.g.AddNode(opType, in, out, attrs...)
	return out
}

// name keeps names unique in the model: inner graphs made in memory have separate name spaces.
func (w *writer) name(hint string) string {
	if w.g != w.m.Graph {
		hint = "inner_" + hint
	}
	return hint
}

// omitted is a missing optional input.
var omitted *onnx.Value

// constant writes a constant as an initializer, a Constant node, or another form that its type allows. Functions have
// no initializers.
func (w *writer) constant(t *onnx.Tensor) *onnx.Value {
	form := w.r.IntN(4)
	switch {
	case form == 0 && t.DataType == onnx.Int64 && len(t.Dims) == 1:
		x, _ := reference.FromONNX(t)
		return w.op("Constant", onnx.IntsAttr("value_ints", x.I))
	case form == 0 && t.DataType == onnx.Float && len(t.Dims) == 0:
		x, _ := reference.FromONNX(t)
		return w.op("Constant", onnx.FloatAttr("value_float", float32(x.F[0])))
	case form <= 1 || w.place == inFunction && w.g != w.m.Graph:
		return w.op("Constant", onnx.TensorAttr("value", t))
	}
	t.Name = w.name("c")
	return w.g.AddInitializer(t)
}

// floats writes a constant of a float type.
func (w *writer) floats(t onnx.DataType, dims []int, v []float64) *onnx.Value {
	return w.constant(tensor(t, dims, v))
}

func tensor(t onnx.DataType, dims []int, v []float64) *onnx.Tensor {
	x := reference.NewFloats(t, dims, v)
	c, err := x.ToONNX("c")
	if err != nil {
		panic(err) // callers only pass float types
	}
	return c
}

// scalar writes a constant of one element, without axes or with one.
func (w *writer) scalar(t onnx.DataType, x float64) *onnx.Value {
	if w.chance(12) && t != onnx.Double { // computed: cast from a wider constant
		c := must(reference.FromONNX(tensor(t, []int{}, []float64{x})))
		return w.cast(w.scalar(onnx.Double, c.F[0]), t)
	}
	return w.floats(t, choose(w, []int{}, []int{}, []int{1}), []float64{x})
}

func (w *writer) ints(v ...int64) *onnx.Value { return w.constant(onnx.NewInt64s("c", v)) }

func (w *writer) cast(v *onnx.Value, t onnx.DataType) *onnx.Value {
	return w.op("Cast", v, onnx.IntAttr("to", int64(t)))
}

// product multiplies in any order and nesting.
func (w *writer) product(factors ...*onnx.Value) *onnx.Value {
	f := slices.Clone(factors)
	w.r.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	for len(f) > 1 {
		i := w.r.IntN(len(f) - 1)
		f[i] = w.op("Mul", f[i], f[i+1])
		f = slices.Delete(f, i+1, i+2)
	}
	return f[0]
}

// sum adds two values in any order.
func (w *writer) sum(a, b *onnx.Value) *onnx.Value {
	if w.chance(2) {
		a, b = b, a
	}
	return w.op(choose(w, "Add", "Add", "Add", "Sum"), a, b)
}

// half reports whether activations are of a 16-bit type.
func (w *writer) half() bool { return w.typ != onnx.Float }
