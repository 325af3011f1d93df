package quantized_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// codedExperts returns a weight with a matrix of n rows for each expert.
func codedExperts(name string, experts, n, k int64) (*fused.Quantized, []float32) {
	q, floats := rewritetest.Quantized(name, experts*n, k)
	for _, t := range []*onnx.Tensor{q.Codes, q.Scale} {
		t.Dims = append([]int64{experts, n / 16}, t.Dims[1:]...)
	}
	q.N, q.Experts = n, experts
	return q, floats
}

// mixtures returns a graph with count MoE whose experts are 64 by 32, and the weights that they read.
func mixtures(t *testing.T, typ onnx.DataType, count int, layout string) (*onnx.Model, []*quantized.Weight) {
	t.Helper()
	const experts, hidden, inner = 3, 64, 32
	m := onnx.New(10, 20)
	m.ImportOpset(fused.Domain, fused.Version)
	dims := func(n ...int64) []onnx.Dim {
		var list []onnx.Dim
		for _, d := range n {
			list = append(list, onnx.Dim{Value: d})
		}
		return list
	}
	x := m.Graph.AddInput("x", onnx.Type{DataType: typ, HasShape: true, Dims: dims(5, hidden)})
	shares := m.Graph.AddInput("shares", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims(5, 2)})
	ids := m.Graph.AddInput("ids", onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: dims(5, 2)})
	var list []*quantized.Weight
	for range count {
		inputs := []*onnx.Value{x, shares, ids}
		for i, size := range [][2]int64{{2 * inner, hidden}, {hidden, inner}} {
			n, k := size[0], size[1]
			matrix, floats := codedExperts("w", experts, n, k)
			stored, shape := floats, []int64{experts, n, k}
			if layout == "in_out" {
				shape, stored = []int64{experts, k, n}, make([]float32, len(floats))
				for at, v := range floats {
					e, r, c := int64(at)/(n*k), int64(at)/k%n, int64(at)%k
					stored[e*n*k+c*n+r] = v
				}
			}
			v := m.Graph.AddInitializer(onnx.NewFloat32s([]string{"gate_up", "down"}[i], shape, stored))
			list = append(list, &quantized.Weight{Value: v, InOut: layout == "in_out", Matrix: matrix,
				Sample: func(rows int64) (*fused.Quantized, []float32, error) {
					sample, floats := rewritetest.Quantized("sample", rows, k)
					return sample, floats, nil
				}})
			inputs = append(inputs, v)
		}
		inputs = append(inputs, m.Graph.AddInitializer(onnx.NewFloat32s("bias", []int64{experts, 2 * inner},
			make([]float32, experts*2*inner))))
		attrs := fused.MoE{GLU: fused.GLU{Activation: "silu", Alpha: 1.702, Limit: 7, UpOffset: 1},
			Packing: "interleaved", GateUpLayout: layout, DownLayout: layout}.Attributes()
		y := m.Graph.NewValue("y")
		n := m.Graph.AddNode("MoE", inputs, []*onnx.Value{y}, attrs...)
		n.Domain = fused.Domain
		f, err := fused.Lookup("MoE").Function(quantized.SiteOf(n, typ, 20))
		if err != nil {
			t.Fatal(err)
		}
		if n.Overload = f.Overload; len(m.Functions) == 0 {
			m.Functions = append(m.Functions, f)
		}
		y.SetType(onnx.Type{DataType: typ})
		m.Graph.AddOutput(y)
	}
	return m, list
}

// TestQuantizeMixture: experts of either layout are read quantized, with the same results.
func TestQuantizeMixture(t *testing.T) {
	for _, layout := range []string{"out_in", "in_out"} {
		m, list := mixtures(t, onnx.Float, 2, layout)
		x, shares := make([]float64, 5*64), make([]float64, 10)
		ids := []int64{0, 1, 2, 0, 1, 1, 2, 1, 0, 2}
		for i := range x {
			x[i] = float64(i%23)/64 - 0.2
		}
		for i := range shares {
			shares[i] = float64(i%3) + 0.5
		}
		in := map[string]*reference.Tensor{"x": reference.NewFloats(onnx.Float, []int{5, 64}, x),
			"shares": reference.NewFloats(onnx.Float, []int{5, 2}, shares),
			"ids":    reference.NewInts(onnx.Int64, []int{5, 2}, ids)}
		want := rewritetest.Run(t, m, in)
		r, err := rewrite.Quantize(m, list, "float", rewrite.Request{})
		if err != nil || len(r.Kept) != len(list) || r.Checked != 1 {
			t.Fatalf("%s: %v, %d kinds, refused %v", layout, err, r.Checked, r.Refuse)
		}
		if n := rewritetest.CountOps(m); n["QMoE"] != 2 || n["MoE"] != 0 {
			t.Errorf("%s: %v", layout, n)
		}
		for _, v := range m.Graph.Initializers() {
			if c := v.Const; len(c.Dims) == 3 && c.DataType == onnx.Float {
				t.Errorf("%s: %q of float32 is still there", layout, v.Name)
			}
		}
		got := rewritetest.Run(t, m, in)
		for name, x := range want {
			if d, scale := prove.Distance(x.F, got[name].F); d > 64*prove.Spacing(onnx.Float, scale) {
				t.Errorf("%s: %s differs by %g", layout, name, d)
			}
		}
	}
}

// TestQuantizeMixtureRefuses: if one matrix cannot be read quantized, the other one stays too.
func TestQuantizeMixtureRefuses(t *testing.T) {
	m, list := mixtures(t, onnx.Float, 2, "out_in")
	list[0].Sample = func(rows int64) (*fused.Quantized, []float32, error) {
		sample, floats := rewritetest.Quantized("sample", rows, 64)
		floats[64+3] += 0.25
		return sample, floats, nil
	}
	r, err := rewrite.Quantize(m, list[:2], "int16", rewrite.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kept) != 0 || !strings.Contains(r.Refuse[list[0]].Error(), "differs from the matched nodes") ||
		r.Refuse[list[1]] == nil {
		t.Errorf("kept %d, refused %v", len(r.Kept), r.Refuse)
	}
	if r, err = rewrite.Quantize(m, list[3:], "int16", rewrite.Request{}); err != nil || len(r.Kept) != 0 ||
		!strings.Contains(r.Refuse[list[3]].Error(), "no quantized form") {
		t.Errorf("%v, refused %v", err, r.Refuse)
	}
	if rewritetest.CountOps(m)["MoE"] != 2 {
		t.Error("the model was changed")
	}
}
