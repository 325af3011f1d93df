package main

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

const (
	hidden  = 64
	heads   = 4
	headDim = hidden / heads
	inner   = 96
)

// layers builds Llama layers the way torch.onnx's dynamo exporter writes them.
type layers struct {
	g    *onnx.Graph
	seed uint32
}

// stack makes a model of at least n nodes.
func stack(n int) *onnx.Model {
	m := onnx.New(10, 20)
	m.ProducerName = "bench/apply"
	b := &layers{g: m.Graph, seed: 1}
	dims := []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "seq"}, {Value: hidden}}
	x := b.g.AddInput("hidden_states", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims})
	cos, sin := b.table(x)
	for len(b.g.Nodes) < n {
		x = b.layer(x, cos, sin)
	}
	x = b.norm(x)
	x.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims})
	b.g.AddOutput(x)
	return m
}

func (b *layers) op(opType string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := b.g.NewValue("val")
	n := b.g.AddNode(opType, inputs, []*onnx.Value{v}, attrs...)
	n.Name = fmt.Sprintf("node_%s_%d", opType, len(b.g.Nodes))
	return v
}

func (b *layers) floats(dims ...int64) *onnx.Value {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		b.seed = b.seed*1664525 + 1013904223
		v[i] = float32(b.seed>>8)/(1<<24) - 0.5
	}
	return b.g.AddInitializer(onnx.NewFloat32s("w", dims, v))
}

func (b *layers) scalar(x float32) *onnx.Value {
	return b.g.AddInitializer(onnx.NewFloat32s("c", []int64{}, []float32{x}))
}

func (b *layers) ints(x ...int64) *onnx.Value { return b.g.AddInitializer(onnx.NewInt64s("i", x)) }

type values = []*onnx.Value

// table computes cos and sin of the positions, [1, 1, seq, headDim].
func (b *layers) table(x *onnx.Value) (cos, sin *onnx.Value) {
	scalarInt := func(i int64) *onnx.Value { return b.op("Squeeze", values{b.ints(i), b.ints(0)}) }
	seq := b.op("Squeeze", values{b.op("Shape", values{x}, onnx.IntAttr("start", 1), onnx.IntAttr("end", 2)),
		b.ints(0)})
	pos := b.op("Range", values{scalarInt(0), seq, scalarInt(1)})
	pos = b.op("Cast", values{b.op("Unsqueeze", values{pos, b.ints(0, 2)})}, onnx.IntAttr("to", int64(onnx.Float)))
	freq := make([]float32, headDim/2)
	for i := range freq {
		freq[i] = float32(math.Pow(10000, -float64(i)/(headDim/2)))
	}
	f := b.op("Mul", values{pos, b.g.AddInitializer(onnx.NewFloat32s("inv_freq", []int64{1, 1, headDim / 2}, freq))})
	f = b.op("Concat", values{f, f}, onnx.IntAttr("axis", -1))
	return b.op("Unsqueeze", values{b.op("Cos", values{f}), b.ints(1)}),
		b.op("Unsqueeze", values{b.op("Sin", values{f}), b.ints(1)})
}

func (b *layers) norm(x *onnx.Value) *onnx.Value {
	ms := b.op("ReduceMean", values{b.op("Pow", values{x, b.scalar(2)}), b.ints(-1)}, onnx.IntAttr("keepdims", 1))
	inv := b.op("Reciprocal", values{b.op("Sqrt", values{b.op("Add", values{ms, b.scalar(1e-5)})})})
	return b.op("Mul", values{b.floats(hidden), b.op("Mul", values{x, inv})})
}

func (b *layers) rotate(x, cos, sin *onnx.Value) *onnx.Value {
	half := func(from, to int64) *onnx.Value {
		return b.op("Slice", values{x, b.ints(from), b.ints(to), b.ints(3), b.ints(1)})
	}
	r := b.op("Concat", values{b.op("Neg", values{half(headDim/2, math.MaxInt64)}), half(0, headDim/2)},
		onnx.IntAttr("axis", -1))
	return b.op("Add", values{b.op("Mul", values{x, cos}), b.op("Mul", values{r, sin})})
}

func (b *layers) split(x *onnx.Value) *onnx.Value {
	x = b.op("Reshape", values{b.op("MatMul", values{x, b.floats(hidden, hidden)}), b.ints(0, 0, heads, headDim)})
	return b.op("Transpose", values{x}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

func (b *layers) layer(x, cos, sin *onnx.Value) *onnx.Value {
	n := b.norm(x)
	q, k, v := b.rotate(b.split(n), cos, sin), b.rotate(b.split(n), cos, sin), b.split(n)
	scores := b.op("MatMul", values{q, b.op("Transpose", values{k}, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))})
	probs := b.op("Softmax", values{b.op("Mul", values{scores, b.scalar(0.25)})}, onnx.IntAttr("axis", -1))
	a := b.op("Transpose", values{b.op("MatMul", values{probs, v})}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	a = b.op("MatMul", values{b.op("Reshape", values{a, b.ints(0, 0, hidden)}), b.floats(hidden, hidden)})
	x = b.op("Add", values{x, a})
	n = b.norm(x)
	gate, up := b.op("MatMul", values{n, b.floats(hidden, inner)}), b.op("MatMul", values{n, b.floats(hidden, inner)})
	act := b.op("Mul", values{b.op("Mul", values{gate, b.op("Sigmoid", values{gate})}), up})
	return b.op("Add", values{x, b.op("MatMul", values{act, b.floats(inner, hidden)})})
}
