//go:build cgo

package rewrite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// storedForm is a way in which mojo.Linear's weights are stored.
type storedForm struct {
	format, code         string
	zero, block          int64
	scale                onnx.DataType
	minus, super, offset bool // offset: MatMulNBits alone does not have its elements
}

var storedForms = []storedForm{
	{"q4_0", "int4", 8, 32, onnx.Float16, false, false, false},
	{"q4_1", "int4", 0, 32, onnx.Float16, true, false, true},
	{"q4_K", "int4", 0, 32, onnx.Int8, true, true, true},
	{"q5_1", "int8", 112, 32, onnx.Float16, true, false, true},
	{"q8_0", "int8", 128, 32, onnx.Float16, false, false, false},
	{"q6_K", "int8", 128, 16, onnx.Int8, false, true, false},
	{"mxfp4", "e2m1", 0, 32, onnx.Uint8, false, false, false},
	{"of a float32 scale", "int4", 7, 16, onnx.Float, false, false, true},
}

// random makes a matrix of random codes and scales.
func (f storedForm) random(t *testing.T, r *rand.Rand, n, k int64) *fused.Quantised {
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
	if f.code == "int8" {
		words = 8
	}
	q := &fused.Quantised{Format: f.format, Code: f.code, Zero: f.zero, Block: f.block, N: n, K: k,
		Codes: tensor("codes", onnx.Uint8, int(p), int(k/32), words, 64),
		Scale: tensor("scale", f.scale, int(p), int(k/f.block), 16)}
	if f.minus {
		q.Minus = tensor("minus", f.scale, int(p), int(k/f.block), 16)
	}
	if f.super {
		q.SuperScale = tensor("super_scale", onnx.Float16, int(p), int(k/256), 16)
		if f.minus {
			q.SuperMinus = tensor("super_minus", onnx.Float16, int(p), int(k/256), 16)
		}
	}
	return q
}

// storedModel multiplies x twice, with a bias the second time, and takes rows of the same matrix.
func storedModel(t *testing.T, f storedForm, typ onnx.DataType) *onnx.Model {
	t.Helper()
	const n, k = 37, 256
	m := onnx.New(10, 21)
	m.ImportOpset(fused.Domain, fused.Version)
	q := f.random(t, rand.New(rand.NewPCG(1, 2)), n, k)
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
	add := func(op string, name string, typ onnx.DataType, inputs []*onnx.Value, attrs ...*onnx.Attribute) {
		for inputs[len(inputs)-1] == nil {
			inputs = inputs[:len(inputs)-1]
		}
		y := m.Graph.NewValue(name)
		node := m.Graph.AddNode(op, inputs, []*onnx.Value{y}, append(attrs, q.Attributes()...)...)
		node.Domain = fused.Domain
		site := fused.Site{Attributes: node.Attributes, Opset: 21}
		for i, v := range inputs {
			of := onnx.Undefined
			var dims []int64
			switch {
			case i == 0 && op == "Linear":
				of = typ
			case i == 0:
				of = onnx.Int64
			case v != nil:
				of, dims = v.Const.DataType, v.Const.Dims
			}
			site.Types, site.Dims = append(site.Types, of), append(site.Dims, dims)
		}
		d, err := fused.Lookup(op).Function(site)
		if err != nil {
			t.Fatal(err)
		}
		node.Overload = d.Overload
		if m.Function(d.Domain, d.Name, d.Overload) == nil {
			m.Functions = append(m.Functions, d)
		}
		y.SetType(onnx.Type{DataType: typ})
		m.Graph.AddOutput(y)
	}
	exact := onnx.StringAttr("activations", "float")
	add("Linear", "plain", typ, append([]*onnx.Value{x}, weights...), exact)
	add("Linear", "biased", typ, append(append([]*onnx.Value{x}, weights...), m.Graph.AddInitializer(bias)), exact)
	add("Embedding", "rows", onnx.Float, append([]*onnx.Value{ids}, weights...))
	return m
}

// storedInputs are those of storedModel.
func storedInputs(typ onnx.DataType) map[string]*reference.Tensor {
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, 2*3*256)
	for i := range x {
		x[i] = math.Round(r.NormFloat64()*64) / 64
	}
	return map[string]*reference.Tensor{"x": reference.NewFloats(typ, []int{2, 3, 256}, x),
		"ids": reference.NewInts(onnx.Int64, []int{2, 3}, []int64{0, 36, 7, 7, 16, 15})}
}

// inOnnxruntime runs a model there.
func inOnnxruntime(t *testing.T, m *onnx.Model, in map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(b, "", ort.WithLibrary(orttest.Library(t)), ort.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var list []*onnx.Tensor
	for _, v := range m.Graph.Inputs {
		x, err := in[v.Name].ToONNX(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	out, err := s.Run(list)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Outputs {
		if got[v.Name], err = reference.FromONNX(out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// TestProductsForTargets has every format written for onnxruntime and for the standard, and runs it in onnxruntime.
func TestProductsForTargets(t *testing.T) {
	for _, f := range storedForms {
		for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16} {
			if typ == onnx.Float16 && f.format != "q4_0" && f.format != "q4_1" && f.format != "mxfp4" {
				continue
			}
			want := runModel(t, storedModel(t, f, typ), storedInputs(typ))
			for _, c := range []struct {
				target string
				level  int64
			}{{"ort", 0}, {"ort", 4}, {"onnx", 0}} {
				t.Run(fmt.Sprint(f.format, typ, c), func(t *testing.T) {
					m := storedModel(t, f, typ)
					r, err := ApplyDefaultKernels(m, Auto, WithTarget(targetNamed(t, c.target)),
						WithAccuracyLevel(c.level))
					if err != nil {
						t.Fatal(err)
					}
					if r.Products == nil || len(r.Products.Open) > 0 || r.Products.Check == nil {
						t.Fatalf("products %+v", r.Products)
					}
					f.look(t, m, c.target, c.level)
					exact := 2e-6
					if typ == onnx.Float16 {
						exact = 2e-3
					}
					compare := func(got map[string]*reference.Tensor, tolerance float64) {
						for name, x := range want {
							allowed := tolerance
							if name == "rows" {
								allowed = 2e-6
							}
							d, scale := distance(x.F, got[name].F)
							if got[name].DataType != x.DataType || !(d <= allowed*scale) {
								t.Errorf("%s %s differs by %g of %g", got[name], name, d, scale)
							}
						}
					}
					compare(runModel(t, m, storedInputs(typ)), exact)
					if c.level == 4 || c.target == "onnx" { // of which onnxruntime makes MatMulNBits with 8 bits, too
						exact = 0.03
					}
					compare(inOnnxruntime(t, m, storedInputs(typ)), exact)
				})
			}
		}
	}
}

// look holds the ops of a model against those that the form needs.
func (f storedForm) look(t *testing.T, m *onnx.Model, to string, level int64) {
	t.Helper()
	have := countOps(m)
	sums, product, rows := 0, "MatMulNBits", "GatherBlockQuantized"
	if f.offset {
		sums = 1 // of both products
	}
	switch {
	case to == "onnx":
		product, rows = "MatMul", "DequantizeLinear"
	case f.code != "int4" && level == 0:
		product, rows, sums = "FusedMatMul", "Gather", 0
	}
	if have[product] < 2 || have[rows] < 1 || have["ReduceSum"] != sums || have["Linear"]+have["Embedding"] > 0 ||
		len(m.Functions) > 0 || m.Opset(fused.Domain) != 0 {
		t.Errorf("the model has %v, %d functions", have, len(m.Functions))
	}
	for _, n := range m.Graph.Nodes {
		if n.OpType == "MatMulNBits" && n.Attr("accuracy_level").Int != level {
			t.Errorf("accuracy_level %d", n.Attr("accuracy_level").Int)
		}
	}
	for _, v := range m.Graph.Initializers() {
		if v.Name == "codes" {
			t.Error("the panels are still there")
		}
	}
}
