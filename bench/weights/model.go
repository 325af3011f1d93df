package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

type sizes struct {
	layers, experts, chosen int
	hidden, inner           int64
	dtype                   onnx.DataType
}

func (s sizes) weightBytes() int64 {
	return int64(s.layers) * int64(s.experts) * s.expertBytes()
}

func (s sizes) expertBytes() int64 { return 3 * s.hidden * s.inner * int64(s.dtype.Bits()/8) }

type values = []*onnx.Value

// unrolled builds mixtures of experts the way TorchScript unrolls a list of modules, each with three weights:
//
//	for e, expert in enumerate(experts):
//	    token, place = torch.where(ids == e)
//	    y.index_add_(0, token, expert(x[token]) * weights[token, place, None])
type unrolled struct {
	sizes
	m     *onnx.Model
	g     *onnx.Graph
	scope string
	named map[string]int // nodes, by scope and type
	noise *noise
	err   error
}

// build makes the model. Its weights are computed when it is written.
func build(s sizes) (*onnx.Model, error) {
	m := onnx.New(8, 17)
	m.ProducerName = "bench/weights"
	b := &unrolled{sizes: s, m: m, g: m.Graph, noise: newNoise(s), named: map[string]int{}}
	typ := onnx.Type{DataType: s.dtype, HasShape: true,
		Dims: []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "seq"}, {Value: s.hidden}}}
	x := b.g.AddInput("hidden_states", typ)
	for i := range s.layers {
		b.scope = fmt.Sprintf("/layers.%d", i)
		x = b.op("Add", values{x, b.mixture(i, b.norm(i, x))})
	}
	x.SetType(typ)
	b.g.AddOutput(x)
	return m, b.err
}

func (b *unrolled) op(opType string, inputs values, attrs ...*onnx.Attribute) *onnx.Value {
	return b.ops(opType, 1, inputs, attrs...)[0]
}

func (b *unrolled) ops(opType string, outputs int, inputs values, attrs ...*onnx.Attribute) values {
	name := b.scope + "/" + opType
	b.named[name]++
	if n := b.named[name]; n > 1 {
		name = fmt.Sprintf("%s_%d", name, n-1)
	}
	outs := make(values, outputs)
	for i := range outs {
		outs[i] = b.g.NewValue(fmt.Sprintf("%s_output_%d", name, i))
	}
	b.g.AddNode(opType, inputs, outs, attrs...).Name = name
	return outs
}

func (b *unrolled) constant(t *onnx.Tensor) *onnx.Value {
	return b.op("Constant", nil, onnx.TensorAttr("value", t))
}

func (b *unrolled) ints(x ...int64) *onnx.Value { return b.constant(onnx.NewInt64s("", x)) }

// weight returns an initializer of random elements.
func (b *unrolled) weight(name string, dims ...int64) *onnx.Value {
	t, err := b.noise.tensor(name, dims)
	if err != nil {
		b.err = err
		t = onnx.NewFloat32s(name, dims, nil)
	}
	return b.g.AddInitializer(t)
}

func (b *unrolled) float(x float32) *onnx.Value {
	return b.constant(onnx.NewFloat32s("", []int64{}, []float32{x}))
}

func (b *unrolled) cast(x *onnx.Value, to onnx.DataType) *onnx.Value {
	return b.op("Cast", values{x}, onnx.IntAttr("to", int64(to)))
}

func (b *unrolled) norm(layer int, x *onnx.Value) *onnx.Value {
	f := b.cast(x, onnx.Float)
	mean := b.op("ReduceMean", values{b.op("Pow", values{f, b.float(2)})}, onnx.IntsAttr("axes", []int64{-1}),
		onnx.IntAttr("keepdims", 1))
	root := b.op("Sqrt", values{b.op("Add", values{mean, b.float(1e-6)})})
	n := b.cast(b.op("Mul", values{f, b.op("Div", values{b.float(1), root})}), b.dtype)
	return b.op("Mul", values{b.weight(fmt.Sprintf("layers.%d.norm.weight", layer), b.hidden), n})
}

func expertWeight(layer, expert int, which string) string {
	return fmt.Sprintf("layers.%d.experts.%d.%s", layer, expert, which)
}

func (b *unrolled) mixture(layer int, h *onnx.Value) *onnx.Value {
	x := b.op("Reshape", values{h, b.ints(-1, b.hidden)})
	logits := b.op("MatMul",
		values{x, b.weight(fmt.Sprintf("layers.%d.router.weight", layer), b.hidden, int64(b.experts))})
	scores := b.op("Softmax", values{b.cast(logits, onnx.Float)}, onnx.IntAttr("axis", -1))
	top := b.ops("TopK", 2, values{scores, b.ints(int64(b.chosen))}, onnx.IntAttr("axis", -1),
		onnx.IntAttr("largest", 1), onnx.IntAttr("sorted", 1))
	sum := b.op("ReduceSum", values{top[0], b.ints(-1)}, onnx.IntAttr("keepdims", 1))
	weights := b.cast(b.op("Div", values{top[0], sum}), b.dtype)
	zero, err := onnx.NewTensor("", b.dtype, []int64{1}, make([]byte, b.dtype.Bits()/8))
	if err != nil {
		b.err = err
	}
	y := b.op("ConstantOfShape", values{b.op("Shape", values{x})}, onnx.TensorAttr("value", zero))
	scope := b.scope
	for e := range b.experts {
		b.scope = fmt.Sprintf("%s/experts.%d", scope, e)
		y = b.expert(layer, e, x, weights, top[1], y)
	}
	b.scope = scope
	return b.op("Reshape", values{y, b.op("Shape", values{h})})
}

// expert adds the result of one expert for its tokens.
func (b *unrolled) expert(layer, e int, x, weights, ids, y *onnx.Value) *onnx.Value {
	at := b.op("NonZero", values{b.op("Equal", values{ids, b.constant(onnxScalar(int64(e)))})})
	parts := b.ops("Split", 2, values{b.op("Transpose", values{at}, onnx.IntsAttr("perm", []int64{1, 0})),
		b.ints(1, 1)}, onnx.IntAttr("axis", 1))
	token, place := b.op("Squeeze", values{parts[0], b.ints(1)}), b.op("Squeeze", values{parts[1], b.ints(1)})
	in := b.op("Gather", values{x, token}, onnx.IntAttr("axis", 0))
	gate := b.op("MatMul", values{in, b.weight(expertWeight(layer, e, "w1"), b.hidden, b.inner)})
	act := b.op("Mul", values{gate, b.op("Sigmoid", values{gate})})
	up := b.op("MatMul", values{in, b.weight(expertWeight(layer, e, "w3"), b.hidden, b.inner)})
	out := b.op("MatMul",
		values{b.op("Mul", values{act, up}), b.weight(expertWeight(layer, e, "w2"), b.inner, b.hidden)})

	wide := b.op("Unsqueeze", values{weights, b.ints(2)})
	shape := b.op("Shape", values{wide})
	columns := b.op("Gather", values{shape, b.ints(1)}, onnx.IntAttr("axis", 0))
	last := b.op("Gather", values{shape, b.ints(2)}, onnx.IntAttr("axis", 0))
	index := b.op("Add", values{place, b.op("Mul", values{token, columns})})
	w := b.op("Gather", values{b.op("Flatten", values{wide}, onnx.IntAttr("axis", 2)), index}, onnx.IntAttr("axis", 0))
	w = b.op("Reshape", values{w, b.op("Concat", values{b.ints(-1), last}, onnx.IntAttr("axis", 0))})
	w = b.op("Reshape", values{w, b.op("Concat", values{b.op("Shape", values{index}), last}, onnx.IntAttr("axis", 0))})
	out = b.op("Mul", values{out, w})

	rows := b.op("Expand", values{b.op("Unsqueeze", values{token, b.ints(1)}), b.op("Shape", values{out})})
	return b.op("ScatterElements", values{y, rows, out}, onnx.IntAttr("axis", 0), onnx.StringAttr("reduction", "add"))
}

func onnxScalar(x int64) *onnx.Tensor {
	t := onnx.NewInt64s("", []int64{x})
	t.Dims = []int64{}
	return t
}

// noise makes weights of random elements: views of one block of memory with different offsets.
type noise struct {
	source *onnx.Tensor
	count  int64
}

func newNoise(s sizes) *noise {
	n := max(s.hidden*s.inner, s.hidden*int64(s.experts)) + noiseSpread
	random := rand.New(rand.NewPCG(1, 1))
	values := make([]float64, n)
	for i := range values {
		values[i] = (random.Float64() - 0.5) / math.Sqrt(float64(s.hidden)) * 3
	}
	t, _ := reference.NewFloats(s.dtype, []int{int(n)}, values).ToONNX("noise")
	return &noise{source: t}
}

// noiseSpread is the number of offsets, a prime.
const noiseSpread = 999_983

func (n *noise) tensor(name string, dims []int64) (*onnx.Tensor, error) {
	n.count++
	return n.source.View(name, dims, n.count*7919%noiseSpread, nil)
}
