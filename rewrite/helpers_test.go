package rewrite

import (
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// modelBuilder writes models as exporters do, node by node.
type modelBuilder struct {
	t    *testing.T
	m    *onnx.Model
	g    *onnx.Graph
	typ  onnx.DataType // of weights and inputs
	seed uint64
}

func newBuilder(t *testing.T, opset int64, typ onnx.DataType) *modelBuilder {
	m := onnx.New(8, opset)
	return &modelBuilder{t: t, m: m, g: m.Graph, typ: typ}
}

func shapeType(t onnx.DataType, dims ...any) onnx.Type {
	typ := onnx.Type{DataType: t, HasShape: true}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			typ.Dims = append(typ.Dims, onnx.Dim{Value: int64(d)})
		case string:
			typ.Dims = append(typ.Dims, onnx.Dim{Value: -1, Param: d})
		}
	}
	return typ
}

func (b *modelBuilder) input(name string, dims ...any) *onnx.Value {
	return b.g.AddInput(name, shapeType(b.typ, dims...))
}

func (b *modelBuilder) op(opType string, args ...any) *onnx.Value {
	var inputs []*onnx.Value
	var attrs []*onnx.Attribute
	for _, a := range args {
		switch a := a.(type) {
		case *onnx.Value:
			inputs = append(inputs, a)
		case *onnx.Attribute:
			attrs = append(attrs, a)
		}
	}
	v := b.g.NewValue(opType + "_out")
	n := b.g.AddNode(opType, inputs, []*onnx.Value{v}, attrs...)
	n.Name = "node_" + v.Name
	return v
}

func (b *modelBuilder) output(v *onnx.Value, dims ...any) {
	v.SetType(shapeType(b.typ, dims...))
	b.g.AddOutput(v)
}

func (b *modelBuilder) scalar(t onnx.DataType, v float64) *onnx.Value {
	return b.constant(reference.NewFloats(t, []int{}, []float64{roundTo(t, v)}), "const")
}

func (b *modelBuilder) constant(t *reference.Tensor, name string) *onnx.Value {
	c, err := t.ToONNX(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.g.AddInitializer(c)
}

func (b *modelBuilder) ints(v ...int64) *onnx.Value {
	return b.g.AddInitializer(onnx.NewInt64s("ints", v))
}

func (b *modelBuilder) weight(name string, dims ...int) *onnx.Value {
	b.seed++
	r := rand.New(rand.NewPCG(b.seed, 1))
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = roundTo(b.typ, 0.5+r.Float64())
	}
	return b.constant(reference.NewFloats(b.typ, dims, v), name)
}

// norm writes an RMSNorm as the newer PyTorch exporter does, with casts where the type is narrow.
func (b *modelBuilder) norm(x, scale *onnx.Value, epsilon float64) *onnx.Value {
	xf := x
	if b.typ != onnx.Float {
		xf = b.op("Cast", x, onnx.IntAttr("to", int64(onnx.Float)))
	}
	mean := b.op("ReduceMean", b.op("Pow", xf, b.scalar(onnx.Float, 2)), b.ints(-1), onnx.IntAttr("keepdims", 1))
	inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", mean, b.scalar(onnx.Float, epsilon))))
	n := b.op("Mul", xf, inverse)
	if b.typ != onnx.Float {
		n = b.op("Cast", n, onnx.IntAttr("to", int64(b.typ)))
	}
	return b.op("Mul", scale, n)
}

// mlp writes a SwiGLU MLP.
func (b *modelBuilder) mlp(x *onnx.Value, hidden, wide int) *onnx.Value {
	gate := b.op("MatMul", x, b.weight("gate_proj", hidden, wide))
	up := b.op("MatMul", x, b.weight("up_proj", hidden, wide))
	act := b.op("Mul", gate, b.op("Sigmoid", gate))
	return b.op("MatMul", b.op("Mul", act, up), b.weight("down_proj", wide, hidden))
}

// rope writes a half rotation with constant bounds.
func (b *modelBuilder) rope(x, cos, sin *onnx.Value, d int64) *onnx.Value {
	lower := b.op("Slice", x, b.ints(0), b.ints(d/2), b.ints(-1), b.ints(1))
	upper := b.op("Slice", x, b.ints(d/2), b.ints(1<<62), b.ints(-1), b.ints(1))
	rotated := b.op("Concat", b.op("Neg", upper), lower, onnx.IntAttr("axis", -1))
	return b.op("Add", b.op("Mul", x, cos), b.op("Mul", rotated, sin))
}

// block is a model of two residual blocks: five norms, three of them after an addition, two MLPs and a rotation.
func block(t *testing.T, opset int64, typ onnx.DataType) *onnx.Model {
	b := newBuilder(t, opset, typ)
	x := b.input("x", "batch", "seq", 16)
	cos, sin := b.input("cos", "batch", 1, "seq", 8), b.input("sin", "batch", 1, "seq", 8)
	h := x
	for range 2 {
		n := b.norm(h, b.weight("norm_weight", 16), 1e-6)
		h = b.op("Add", h, b.mlp(n, 16, 24))
	}
	last := b.norm(h, b.weight("final_weight", 16), 1e-6)
	b.output(last, "batch", "seq", 16)
	heads := b.op("Transpose", b.op("Reshape", last, b.ints(0, 0, 2, 8)), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	b.output(b.rope(heads, cos, sin, 8), "batch", 2, "seq", 8)
	return b.m
}

// evaluate runs a model on seeded inputs, symbolic dimensions being 2, 3, ….
func evaluate(t *testing.T, m *onnx.Model) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	inputs := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		var shape []int64
		for _, d := range typ.Dims {
			if d.Value < 0 {
				if sizes[d.Param] == 0 {
					sizes[d.Param] = smallDims[len(sizes)]
				}
				d.Value = sizes[d.Param]
			}
			shape = append(shape, d.Value)
		}
		if inputs[v.Name], err = makeInput(kinds[0], i, typ.DataType, shape); err != nil {
			t.Fatal(err)
		}
	}
	out, err := e.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func countOps(m *onnx.Model) map[string]int {
	n := map[string]int{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, x := range g.Nodes {
			n[x.OpType]++
		}
	})
	return n
}
