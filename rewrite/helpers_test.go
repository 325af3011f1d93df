package rewrite

import (
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// modelBuilder writes models as exporters do, node by node.
type modelBuilder struct {
	*onnxtest.Builder
	t    *testing.T
	typ  onnx.DataType // of weights and inputs
	seed uint64
}

func newBuilder(t *testing.T, opset int64, typ onnx.DataType) *modelBuilder {
	b := &modelBuilder{Builder: onnxtest.New(opset), t: t, typ: typ}
	b.Model.IRVersion = 8
	return b
}

func (b *modelBuilder) input(name string, dims ...any) *onnx.Value {
	return b.Input(name, b.typ, dims...)
}

// output declares the shape of an output.
func (b *modelBuilder) output(v *onnx.Value, dims ...any) {
	v.SetType(onnxtest.Type(b.typ, dims...))
	b.Output(v)
}

func (b *modelBuilder) scalar(t onnx.DataType, v float64) *onnx.Value {
	return b.constant(reference.NewFloats(t, []int{}, []float64{prove.RoundTo(t, v)}), "const")
}

func (b *modelBuilder) constant(t *reference.Tensor, name string) *onnx.Value {
	c, err := t.ToONNX(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Constant(c)
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
		v[i] = prove.RoundTo(b.typ, 0.5+r.Float64())
	}
	return b.constant(reference.NewFloats(b.typ, dims, v), name)
}

// norm writes an RMSNorm as the newer PyTorch exporter does, with casts where the type is narrow.
func (b *modelBuilder) norm(x, scale *onnx.Value, epsilon float64) *onnx.Value {
	xf := x
	if b.typ != onnx.Float {
		xf = b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float)))
	}
	mean := b.Op("ReduceMean", b.Op("Pow", xf, b.scalar(onnx.Float, 2)), b.Ints(-1), onnx.IntAttr("keepdims", 1))
	inverse := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", mean, b.scalar(onnx.Float, epsilon))))
	n := b.Op("Mul", xf, inverse)
	if b.typ != onnx.Float {
		n = b.Op("Cast", n, onnx.IntAttr("to", int64(b.typ)))
	}
	return b.Op("Mul", scale, n)
}

// mlp writes a SwiGLU MLP.
func (b *modelBuilder) mlp(x *onnx.Value, hidden, wide int) *onnx.Value {
	gate := b.Op("MatMul", x, b.weight("gate_proj", hidden, wide))
	up := b.Op("MatMul", x, b.weight("up_proj", hidden, wide))
	act := b.Op("Mul", gate, b.Op("Sigmoid", gate))
	return b.Op("MatMul", b.Op("Mul", act, up), b.weight("down_proj", wide, hidden))
}

// rope writes a half rotation with constant bounds.
func (b *modelBuilder) rope(x, cos, sin *onnx.Value, d int64) *onnx.Value {
	lower := b.Op("Slice", x, b.Ints(0), b.Ints(d/2), b.Ints(-1), b.Ints(1))
	upper := b.Op("Slice", x, b.Ints(d/2), b.Ints(1<<62), b.Ints(-1), b.Ints(1))
	rotated := b.Op("Concat", b.Op("Neg", upper), lower, onnx.IntAttr("axis", -1))
	return b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", rotated, sin))
}

// block is a model of two residual blocks: five norms, three of them after an addition, two MLPs and a rotation.
func block(t *testing.T, opset int64, typ onnx.DataType) *onnx.Model {
	b := newBuilder(t, opset, typ)
	x := b.input("x", "batch", "seq", 16)
	cos, sin := b.input("cos", "batch", 1, "seq", 8), b.input("sin", "batch", 1, "seq", 8)
	h := x
	for range 2 {
		n := b.norm(h, b.weight("norm_weight", 16), 1e-6)
		h = b.Op("Add", h, b.mlp(n, 16, 24))
	}
	last := b.norm(h, b.weight("final_weight", 16), 1e-6)
	b.output(last, "batch", "seq", 16)
	heads := b.Op("Transpose", b.Op("Reshape", last, b.Ints(0, 0, 2, 8)), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	b.output(b.rope(heads, cos, sin, 8), "batch", 2, "seq", 8)
	return b.Model
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
		if inputs[v.Name], err = prove.MakeInput(prove.Normal, i, typ.DataType, shape); err != nil {
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
