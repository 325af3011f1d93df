//go:build cgo

package target_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestProductsForTargets writes every format for onnxruntime and for the standard, and runs it in onnxruntime.
func TestProductsForTargets(t *testing.T) {
	for _, f := range rewritetest.StoredForms {
		for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16} {
			if typ == onnx.Float16 && f.Format != "q4_0" && f.Format != "q4_1" && f.Format != "mxfp4" {
				continue
			}
			want := rewritetest.Run(t, rewritetest.StoredModel(t, f, typ), rewritetest.StoredInputs(typ))
			for _, c := range []struct {
				target string
				level  int64
			}{{"ort", 0}, {"ort", 4}, {"onnx", 0}} {
				t.Run(fmt.Sprint(f.Format, typ, c), func(t *testing.T) {
					m := rewritetest.StoredModel(t, f, typ)
					r, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, c.target),
						AccuracyLevel: c.level})
					if err != nil {
						t.Fatal(err)
					}
					if r.Products == nil || len(r.Products.Open) > 0 || r.Products.Check == nil {
						t.Fatalf("products %+v", r.Products)
					}
					notes := strings.Join(r.Products.Notes, "\n")
					if strings.Contains(notes, "session.qdq_matmulnbits_accuracy_level=0") != (c.target == "onnx") {
						t.Errorf("%s: notes %q", c.target, notes)
					}
					look(t, f, m, c.target, c.level)
					exact := 2e-6
					if typ == onnx.Float16 {
						exact = 2e-3
					}
					compare := func(got map[string]*reference.Tensor, tolerance float64) {
						for name, x := range want {
							allowed := tolerance
							if strings.HasPrefix(name, "rows") {
								allowed = 2e-6
							}
							d, scale := prove.Distance(x.F, got[name].F)
							if got[name].DataType != x.DataType || !(d <= allowed*scale) {
								t.Errorf("%s %s differs by %g of %g", got[name], name, d, scale)
							}
						}
					}
					compare(rewritetest.Run(t, m, rewritetest.StoredInputs(typ)), exact)
					if c.level == 4 || c.target == "onnx" { // onnxruntime makes MatMulNBits with 8 bits of it, too
						exact = 0.03
					}
					compare(rewritetest.InOnnxruntime(t, m, rewritetest.StoredInputs(typ)), exact)
				})
			}
		}
	}
}

// look compares the ops of a model with those that the form needs.
func look(t *testing.T, f rewritetest.StoredForm, m *onnx.Model, to string, level int64) {
	t.Helper()
	have := rewritetest.CountOps(m)
	sums, product, rows := 0, "MatMulNBits", "GatherBlockQuantized"
	if f.Offset {
		sums = 1 // shared by both products
	}
	switch {
	case to == "onnx":
		product, rows = "MatMul", "DequantizeLinear"
	case f.Code != "int4" && level == 0:
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

// TestExpertsForTargets writes experts after a router for onnxruntime, and runs them there.
func TestExpertsForTargets(t *testing.T) {
	const experts, hidden, inner, tokens = 5, 256, 512, 6
	by := map[string]rewritetest.StoredForm{}
	for _, f := range rewritetest.StoredForms {
		by[f.Format] = f
	}
	for _, c := range []struct {
		up, down, packing, activation string
		level                         int64
		bias                          bool
		score                         string
		reason                        string
	}{
		{"q4_0", "q4_0", "halves", "silu", 0, true, "softmax", ""},
		{"q4_0", "q4_0", "interleaved", "silu", 4, false, "sigmoid", ""},
		{"q8_0", "q8_0", "halves", "silu", 4, true, "softmax", ""},
		{"mxfp4", "mxfp4", "none", "relu", 4, false, "softmax", ""},
		{"q8_0", "q8_0", "halves", "silu", 0, false, "softmax", "use --accuracy-level 4 to allow it"},
		{"q4_1", "q4_0", "halves", "silu", 0, false, "softmax", "does not support signed codes"},
		{"q8_0", "q6_K", "halves", "silu", 4, false, "softmax", "one block size"},
		{"q4_0", "q8_0", "halves", "silu", 4, false, "softmax", "experts of one bit width"},
		{"q4_0", "q4_0", "halves", "gelu", 0, false, "softmax", "only silu gates, not gelu"},
		{"q4_0", "q4_0", "halves", "silu", 0, false, "", "come from no TopKRouter"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			m := onnx.New(10, 23)
			m.ImportOpset(fused.Domain, fused.Version)
			float := func(name string, width int) *onnx.Value {
				return m.Graph.AddInput(name, onnxtest.Type(onnx.Float, 2, 3, width))
			}
			x, logits := float("x", hidden), float("logits", experts)
			var route []*onnx.Value
			if c.score != "" {
				route = rewritetest.AddFused(t, m, "TopKRouter", []*onnx.Value{logits}, []string{"weights", "ids"},
					fused.TopKRouter{TopK: 2, Score: c.score, Order: "score_first", Groups: 1, GroupTopK: 1,
						GroupScore: "max", Renormalize: true, Epsilon: 1e-20, Scale: 2.5}.Attributes()...)
				route[1].SetType(onnx.Type{DataType: onnx.Int64})
			} else {
				chosen := onnx.NewInt64s("ids", []int64{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1})
				chosen.Dims = []int64{2, 3, 2}
				route = []*onnx.Value{float("weights", 2), m.Graph.AddInitializer(chosen)}
			}
			inputs := append([]*onnx.Value{x}, append(route, make([]*onnx.Value, 12)...)...)
			matrix := func(f rewritetest.StoredForm, at [6]int, n, k int64, bias bool) *fused.Quantized {
				q := f.Random(t, r, experts*n, k)
				for i, w := range q.Tensors() {
					if w != nil {
						w.Dims = append([]int64{experts, n / 16}, w.Dims[1:]...)
						inputs[at[i]] = m.Graph.AddInitializer(w)
					}
				}
				if bias {
					v := make([]float32, experts*n)
					for i := range v {
						v[i] = float32(r.IntN(16)) / 16
					}
					inputs[at[5]] = m.Graph.AddInitializer(onnx.NewFloat32s("bias", []int64{experts, n}, v))
				}
				return q
			}
			rows := int64(2 * inner)
			if c.packing == "none" {
				rows = inner
			}
			up := matrix(by[c.up], fused.QMoEGateUp, rows, hidden, c.bias)
			down := matrix(by[c.down], fused.QMoEDown, hidden, inner, c.bias)
			limit := float32(0)
			if c.bias {
				limit = 0.75
			}
			y := rewritetest.AddFused(t, m, "QMoE", inputs, []string{"y"}, fused.QMoE{
				GLU:     fused.GLU{Activation: c.activation, Alpha: 1, Limit: limit},
				Packing: c.packing, GateUpCode: up.Code, GateUpZero: up.Zero, GateUpBlock: up.Block,
				DownCode: down.Code, DownZero: down.Zero, DownBlock: down.Block, Hidden: hidden, Inner: inner,
				Activations: "float"}.Attributes()...)[0]
			y.SetType(onnx.Type{DataType: onnx.Float})
			m.Graph.AddOutput(y)
			in := map[string]*reference.Tensor{}
			for _, v := range m.Graph.Inputs {
				typ, _ := v.Type()
				shape, n := []int{}, 1
				for _, d := range typ.Dims {
					shape, n = append(shape, int(d.Value)), n*int(d.Value)
				}
				f := make([]float64, n)
				for i := range f {
					f[i] = math.Round(64*r.NormFloat64()) / 64
				}
				in[v.Name] = reference.NewFloats(onnx.Float, shape, f)
			}
			want := rewritetest.Run(t, m, in)
			report, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, "ort"), AccuracyLevel: c.level})
			if err != nil {
				t.Fatal(err)
			}
			if c.reason != "" {
				if open := fmt.Sprint(report.Products.Open); !strings.Contains(open, c.reason) ||
					len(report.Products.Emits) > 0 {
					t.Errorf("%+v", report.Products)
				}
				return
			}
			if report.Products.Emits["QMoE"] != 1 || len(report.Products.Open) > 0 || report.Products.Check == nil ||
				!(report.Products.Check.MaxRel < 1e-5) {
				t.Fatalf("%+v", report.Products)
			}
			compare := func(got *reference.Tensor, tolerance float64) {
				t.Helper()
				if d, scale := prove.Distance(want["y"].F, got.F); !(d <= tolerance*scale) {
					t.Errorf("differs by %g of %g", d, scale)
				}
			}
			compare(rewritetest.Run(t, m, in)["y"], 2e-6)
			tolerance := 2e-6
			if c.level == 4 {
				tolerance = 0.06
			}
			compare(rewritetest.InOnnxruntime(t, m, in)["y"], tolerance)
		})
	}
}
