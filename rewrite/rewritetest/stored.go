package rewritetest

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// StoredForm is a storage format of mojo.Linear's weights.
type StoredForm struct {
	Format, Code string
	Zero, Block  int64
	Scale        onnx.DataType
	// Minus and Super report which arrays it has, and Offset whether elements have offsets, as in all but MatMulNBits.
	Minus, Super, Offset bool
}

// StoredForms has a form for each way to store scales and offsets.
var StoredForms = []StoredForm{
	{"q4_0", "int4", 8, 32, onnx.Float16, false, false, false},
	{"q4_1", "int4", 0, 32, onnx.Float16, true, false, true},
	{"q4_K", "int4", 0, 32, onnx.Int8, true, true, true},
	{"q5_1", "int8", 112, 32, onnx.Float16, true, false, true},
	{"q8_0", "int8", 128, 32, onnx.Float16, false, false, false},
	{"q6_K", "int8", 128, 16, onnx.Int8, false, true, false},
	{"mxfp4", "e2m1", 0, 32, onnx.Uint8, false, false, false},
	{"of a float32 scale", "int4", 7, 16, onnx.Float, false, false, true},
}

// Random makes a matrix of random codes and scales.
func (f StoredForm) Random(t *testing.T, r *rand.Rand, n, k int64) *fused.Quantized {
	t.Helper()
	p := (n + 15) / 16
	tensor := func(name string, typ onnx.DataType, dims ...int) *onnx.Tensor {
		count := 1
		for _, d := range dims {
			count *= d
		}
		x := reference.NewInts(typ, dims, make([]int64, count))
		for i := range x.I {
			x.I[i] = int64(r.IntN(256))
			if name == "scale" && typ == onnx.Uint8 {
				x.I[i] = int64(118 + r.IntN(6))
			} else if typ == onnx.Int8 {
				x.I[i] = int64(int8(x.I[i]))
			}
		}
		if typ.IsFloat() {
			size := 0.02
			if strings.HasPrefix(name, "super") {
				size = 2e-4
			}
			x = reference.NewFloats(typ, dims, make([]float64, count))
			for i := range x.F {
				x.F[i] = size * r.NormFloat64()
			}
		}
		v, err := x.ToONNX(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	words := 4
	if f.Code == "int8" {
		words = 8
	}
	q := &fused.Quantized{Format: f.Format, Code: f.Code, Zero: f.Zero, Block: f.Block, N: n, K: k,
		Codes: tensor("codes", onnx.Uint8, int(p), int(k/32), words, 64),
		Scale: tensor("scale", f.Scale, int(p), int(k/f.Block), 16)}
	if f.Minus {
		q.Minus = tensor("minus", f.Scale, int(p), int(k/f.Block), 16)
	}
	if f.Super {
		q.SuperScale = tensor("super_scale", onnx.Float16, int(p), int(k/256), 16)
		if f.Minus {
			q.SuperMinus = tensor("super_minus", onnx.Float16, int(p), int(k/256), 16)
		}
	}
	return q
}

// StoredModel multiplies x three times, the second time with a bias and the third with fewer rows of the matrix, and
// gathers rows of the same matrix and of a larger part of it.
func StoredModel(t *testing.T, f StoredForm, typ onnx.DataType) *onnx.Model {
	t.Helper()
	const n, k = 37, 256
	m := onnx.New(10, 21)
	m.ImportOpset(fused.Domain, fused.Version)
	q := f.Random(t, rand.New(rand.NewPCG(1, 2)), n, k)
	dims := func(last ...int64) []onnx.Dim {
		list := []onnx.Dim{{Param: "batch", Value: -1}, {Param: "sequence", Value: -1}}
		for _, d := range last {
			list = append(list, onnx.Dim{Value: d})
		}
		return list
	}
	x := m.Graph.AddInput("x", onnx.Type{DataType: typ, HasShape: true, Dims: dims(k)})
	ids := m.Graph.AddInput("ids", onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: dims()})
	var weights []*onnx.Value
	for _, w := range q.Tensors() {
		var v *onnx.Value
		if w != nil {
			v = m.Graph.AddInitializer(w)
		}
		weights = append(weights, v)
	}
	bias, err := reference.NewFloats(typ, []int{n}, slices.Repeat([]float64{0.5}, n)).ToONNX("bias")
	if err != nil {
		t.Fatal(err)
	}
	add := func(op, name string, n int64, inputs []*onnx.Value, attrs ...*onnx.Attribute) {
		q := *q
		q.N = n
		y := AddFused(t, m, op, inputs, []string{name}, append(attrs, q.Embedding().Attributes()...)...)[0]
		y.SetType(onnx.Type{DataType: typ})
		if op == fused.EmbeddingName {
			y.SetType(onnx.Type{DataType: onnx.Float})
		}
		m.Graph.AddOutput(y)
	}
	exact := onnx.StringAttr("activations", "float")
	add(fused.LinearName, "plain", n, append([]*onnx.Value{x}, weights...), exact)
	add(fused.LinearName, "biased", n, slices.Concat([]*onnx.Value{x}, weights,
		[]*onnx.Value{m.Graph.AddInitializer(bias)}), exact)
	add(fused.LinearName, "fewer", n-4, append([]*onnx.Value{x}, weights...), exact)
	add(fused.EmbeddingName, "rows", n, append([]*onnx.Value{ids}, weights...))
	add(fused.EmbeddingName, "rows of more", n+11, append([]*onnx.Value{ids}, weights...))
	return m
}

// AddFused adds a node of a fused op with its definition, and returns its outputs. Inputs without a type are floats.
func AddFused(t *testing.T, m *onnx.Model, op string, inputs []*onnx.Value, outputs []string,
	attrs ...*onnx.Attribute) (made []*onnx.Value) {
	t.Helper()
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	s := fused.Site{Attributes: attrs, Opset: m.Opset("")}
	for _, v := range inputs {
		typ, dims := onnx.Undefined, []int64(nil)
		if v != nil && v.Const != nil {
			typ, dims = v.Const.DataType, v.Const.Dims
		} else if v != nil {
			typ = onnx.Float
			if declared, ok := v.Type(); ok {
				typ = declared.DataType
			}
		}
		s.Types, s.Dims = append(s.Types, typ), append(s.Dims, dims)
	}
	f, err := fused.Lookup(op).Function(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range outputs {
		made = append(made, m.Graph.NewValue(name))
	}
	n := m.Graph.AddNode(op, inputs, made, attrs...)
	n.Domain, n.Overload = f.Domain, f.Overload
	if m.Function(f.Domain, f.Name, f.Overload) == nil {
		m.Functions = append(m.Functions, f)
	}
	return made
}

// StoredInputs returns inputs of StoredModel.
func StoredInputs(typ onnx.DataType) map[string]*reference.Tensor {
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, 2*3*256)
	for i := range x {
		x[i] = math.Round(r.NormFloat64()*64) / 64
	}
	return map[string]*reference.Tensor{"x": reference.NewFloats(typ, []int{2, 3, 256}, x),
		"ids": reference.NewInts(onnx.Int64, []int{2, 3}, []int64{0, 36, 7, 7, 16, 15})}
}
