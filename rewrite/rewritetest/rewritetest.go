// Package rewritetest has common helpers of rewriting tests: hand-written models, the bundled ones, and ways to run
// them.
package rewritetest

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A Builder writes models like an exporter, node by node.
type Builder struct {
	*onnxtest.Builder
	T    *testing.T
	Type onnx.DataType // of weights and inputs
	Seed uint64        // of the last weight
}

func New(t *testing.T, opset int64, typ onnx.DataType) *Builder {
	b := &Builder{Builder: onnxtest.New(opset), T: t, Type: typ}
	b.Model.IRVersion = 8
	return b
}

func (b *Builder) In(name string, dims ...any) *onnx.Value {
	return b.Input(name, b.Type, dims...)
}

// Out declares an output with its shape.
func (b *Builder) Out(v *onnx.Value, dims ...any) {
	v.SetType(onnxtest.Type(b.Type, dims...))
	b.Output(v)
}

func (b *Builder) Scalar(t onnx.DataType, v float64) *onnx.Value {
	return b.Tensor(reference.NewFloats(t, []int{}, []float64{prove.RoundTo(t, v)}), "const")
}

func (b *Builder) Tensor(t *reference.Tensor, name string) *onnx.Value {
	c, err := t.ToONNX(name)
	if err != nil {
		b.T.Fatal(err)
	}
	return b.Constant(c)
}

func (b *Builder) Weight(name string, dims ...int) *onnx.Value {
	b.Seed++
	r := rand.New(rand.NewPCG(b.Seed, 1))
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = prove.RoundTo(b.Type, 0.5+r.Float64())
	}
	return b.Tensor(reference.NewFloats(b.Type, dims, v), name)
}

// Norm writes an RMSNorm like the newer PyTorch exporter, with casts if the type is narrow.
func (b *Builder) Norm(x, scale *onnx.Value, epsilon float64) *onnx.Value {
	xf := x
	if b.Type != onnx.Float {
		xf = b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float)))
	}
	mean := b.Op("ReduceMean", b.Op("Pow", xf, b.Scalar(onnx.Float, 2)), b.Ints(-1), onnx.IntAttr("keepdims", 1))
	inverse := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", mean, b.Scalar(onnx.Float, epsilon))))
	n := b.Op("Mul", xf, inverse)
	if b.Type != onnx.Float {
		n = b.Op("Cast", n, onnx.IntAttr("to", int64(b.Type)))
	}
	return b.Op("Mul", scale, n)
}

// MLP writes a SwiGLU MLP.
func (b *Builder) MLP(x *onnx.Value, hidden, wide int) *onnx.Value {
	gate := b.Op("MatMul", x, b.Weight("gate_proj", hidden, wide))
	up := b.Op("MatMul", x, b.Weight("up_proj", hidden, wide))
	act := b.Op("Mul", gate, b.Op("Sigmoid", gate))
	return b.Op("MatMul", b.Op("Mul", act, up), b.Weight("down_proj", wide, hidden))
}

// Rope writes a half rotation with constant bounds.
func (b *Builder) Rope(x, cos, sin *onnx.Value, d int64) *onnx.Value {
	lower := b.Op("Slice", x, b.Ints(0), b.Ints(d/2), b.Ints(-1), b.Ints(1))
	upper := b.Op("Slice", x, b.Ints(d/2), b.Ints(1<<62), b.Ints(-1), b.Ints(1))
	rotated := b.Op("Concat", b.Op("Neg", upper), lower, onnx.IntAttr("axis", -1))
	return b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", rotated, sin))
}

// TopK adds a TopK over the last axis.
func (b *Builder) TopK(x *onnx.Value, k int64) (values, indices *onnx.Value) {
	values, indices = b.Graph.NewValue("values"), b.Graph.NewValue("indices")
	b.Graph.AddNode("TopK", []*onnx.Value{x, b.Ints(k)}, []*onnx.Value{values, indices},
		onnx.IntAttr("axis", -1)).Name = "topk"
	return values, indices
}

// Share divides by the sum of the last axis.
func (b *Builder) Share(w *onnx.Value) *onnx.Value {
	return b.Op("Div", w, b.Op("ReduceSum", w, b.Ints(-1), onnx.IntAttr("keepdims", 1)))
}

// Block returns a model with two residual blocks: five norms, three of them after an addition, two MLPs and a rotation.
func Block(t *testing.T, opset int64, typ onnx.DataType) *onnx.Model {
	b := New(t, opset, typ)
	x := b.In("x", "batch", "seq", 16)
	cos, sin := b.In("cos", "batch", 1, "seq", 8), b.In("sin", "batch", 1, "seq", 8)
	h := x
	for range 2 {
		n := b.Norm(h, b.Weight("norm_weight", 16), 1e-6)
		h = b.Op("Add", h, b.MLP(n, 16, 24))
	}
	last := b.Norm(h, b.Weight("final_weight", 16), 1e-6)
	b.Out(last, "batch", "seq", 16)
	heads := b.Op("Transpose", b.Op("Reshape", last, b.Ints(0, 0, 2, 8)), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	b.Out(b.Rope(heads, cos, sin, 8), "batch", 2, "seq", 8)
	return b.Model
}

// Evaluate runs a model on seeded inputs, with symbolic dimensions 2, 3, ….
func Evaluate(t *testing.T, m *onnx.Model) map[string]*reference.Tensor {
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
					sizes[d.Param] = []int64{2, 3, 5, 7, 11, 13}[len(sizes)]
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

func CountOps(m *onnx.Model) map[string]int {
	n := map[string]int{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, x := range g.Nodes {
			n[x.OpType]++
		}
	})
	return n
}

// ReadModel reads one of the bundled exports.
func ReadModel(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(filepath.Join(root(t), "models", name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// DecoderInputs returns inputs of the bundled decoder with a cache. room is its number of rows, of which past hold
// tokens. The others are NaN.
func DecoderInputs(t *testing.T, m *onnx.Model, batch, queries, past, room int) map[string]*reference.Tensor {
	t.Helper()
	inputs := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		switch v.Name {
		case "input_ids":
			ids := make([]int64, batch*queries)
			for i := range ids {
				ids[i] = int64(7*i%13 + 1)
			}
			inputs[v.Name] = reference.NewInts(typ.DataType, []int{batch, queries}, ids)
		case "attention_mask":
			left := prove.Padding{Exists: func(b, j, _ int) bool { return b == 0 || j >= 2 }}
			inputs[v.Name] = left.Tensor(typ.DataType, []int64{int64(batch), int64(past + queries)})
		case "past_length", "use_cache_branch": // filled by the caller
		default:
			dims := []int64{int64(batch), typ.Dims[1].Value, int64(past), typ.Dims[3].Value}
			cache, err := prove.MakeInput(prove.Normal, i, typ.DataType, dims)
			if err != nil {
				t.Fatal(err)
			}
			inputs[v.Name] = cache
			if room > past {
				shape := []int{batch, int(dims[1]), room, int(dims[3])}
				junk := slices.Repeat([]float64{math.NaN()}, shape[0]*shape[1]*shape[2]*shape[3])
				inputs[v.Name] = reference.NewFloats(typ.DataType, shape, junk)
				prove.CopyRows(inputs[v.Name], cache)
			}
		}
	}
	return inputs
}

func Run(t *testing.T, m *onnx.Model, inputs map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// root returns the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		err = errors.New("no go.mod above the test")
	}
	t.Fatal(err)
	return ""
}

// CheckOrder fails if a node reads a value computed after it.
func CheckOrder(t *testing.T, m *onnx.Model) {
	t.Helper()
	seen := map[*onnx.Node]bool{}
	for _, n := range m.Graph.Nodes {
		for _, v := range n.Inputs {
			if v.Producer != nil && !seen[v.Producer] {
				t.Errorf("node %s reads %s before it is made", n.Name, v.Name)
			}
		}
		seen[n] = true
	}
}

// Kernel imitates a kernel: it computes the definition of a fused op, of which change then changes the outputs.
func Kernel(change func(in, out []*reference.Tensor)) func(string, []*onnx.Attribute, []*onnx.Tensor) ([]*onnx.Tensor,
	error) {
	return func(op string, attrs []*onnx.Attribute, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
		s := fused.Site{Attributes: attrs, Opset: 20}
		in := make([]*reference.Tensor, len(inputs))
		var err error
		for i, x := range inputs {
			s.Types, s.Dims = append(s.Types, x.DataType), append(s.Dims, x.Dims)
			if in[i], err = reference.FromONNX(x); err != nil {
				return nil, err
			}
		}
		f, err := fused.Lookup(op).Function(s)
		if err != nil {
			return nil, err
		}
		out, err := prove.Op(s.Opset, &onnx.Node{Domain: fused.Domain, OpType: op, Overload: f.Overload,
			Attributes: attrs, Outputs: make([]*onnx.Value, len(f.Body.Outputs))}, f)(reference.Options{}, in)
		if err != nil {
			return nil, err
		}
		change(in, out)
		made := make([]*onnx.Tensor, len(out))
		for i, y := range out {
			if made[i], err = y.ToONNX("y"); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
}

// RunPadded evaluates a model on sequences, one of which has left padding.
func RunPadded(t *testing.T, m *onnx.Model) map[string]*reference.Tensor {
	t.Helper()
	past := 0
	if slices.ContainsFunc(m.Graph.Inputs, func(v *onnx.Value) bool { return strings.HasPrefix(v.Name, "past") }) {
		past = 3
	}
	return Run(t, m, DecoderInputs(t, m, 2, 5, past, past))
}

// GLUAttributes returns the attributes of a GLU.
func GLUAttributes(activation string, alpha, limit, offset float32) []*onnx.Attribute {
	return fused.GLU{Activation: activation, Alpha: alpha, Limit: limit, UpOffset: offset}.Attributes()
}
