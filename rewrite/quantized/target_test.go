//go:build cgo

package quantized_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// storedForm is a storage format of mojo.Linear's weights.
type storedForm struct {
	format, code         string
	zero, block          int64
	scale                onnx.DataType
	minus, super, offset bool // offset: all but MatMulNBits have offsets
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
func (f storedForm) random(t *testing.T, r *rand.Rand, n, k int64) *fused.Quantized {
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
	q := &fused.Quantized{Format: f.format, Code: f.code, Zero: f.zero, Block: f.block, N: n, K: k,
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

// storedModel multiplies x three times, the second time with a bias and the third with fewer rows of the matrix, and
// gathers rows of the same matrix and of a larger part of it.
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
	add := func(op string, name string, typ onnx.DataType, n int64, inputs []*onnx.Value, attrs ...*onnx.Attribute) {
		q := *q
		q.N = n
		for inputs[len(inputs)-1] == nil {
			inputs = inputs[:len(inputs)-1]
		}
		y := m.Graph.NewValue(name)
		node := m.Graph.AddNode(op, inputs, []*onnx.Value{y}, append(attrs, q.Embedding().Attributes()...)...)
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
	add("Linear", "plain", typ, n, append([]*onnx.Value{x}, weights...), exact)
	add("Linear", "biased", typ, n, append(append([]*onnx.Value{x}, weights...), m.Graph.AddInitializer(bias)), exact)
	add("Linear", "fewer", typ, n-4, append([]*onnx.Value{x}, weights...), exact)
	add("Embedding", "rows", onnx.Float, n, append([]*onnx.Value{ids}, weights...))
	add("Embedding", "rows of more", onnx.Float, n+11, append([]*onnx.Value{ids}, weights...))
	return m
}

// storedInputs returns inputs of storedModel.
func storedInputs(typ onnx.DataType) map[string]*reference.Tensor {
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, 2*3*256)
	for i := range x {
		x[i] = math.Round(r.NormFloat64()*64) / 64
	}
	return map[string]*reference.Tensor{"x": reference.NewFloats(typ, []int{2, 3, 256}, x),
		"ids": reference.NewInts(onnx.Int64, []int{2, 3}, []int64{0, 36, 7, 7, 16, 15})}
}

// branched moves the nodes of a model into both branches of an If.
func branched(m *onnx.Model) {
	g := m.Graph
	taken := g.AddInput("taken", onnx.Type{DataType: onnx.Bool, HasShape: true})
	nodes, dead := g.Nodes, map[*onnx.Node]bool{}
	var attrs []*onnx.Attribute
	for _, name := range []string{"then_branch", "else_branch"} {
		branch := g.NewSubgraph(name)
		for _, n := range nodes {
			v := branch.NewValue(n.Outputs[0].Name)
			if t, ok := n.Outputs[0].Type(); ok {
				v.SetType(t)
			}
			c := branch.AddNode(n.OpType, n.Inputs, []*onnx.Value{v}, n.Attributes...)
			c.Domain, c.Overload = n.Domain, n.Overload
			branch.AddOutput(v)
			dead[n] = true
		}
		attrs = append(attrs, onnx.GraphAttr(name, branch))
	}
	choice := g.NewNode("If", []*onnx.Value{taken}, attrs...)
	for i, n := range nodes {
		choice.TakeOutput(i, n.Outputs[0])
	}
	g.InsertAt(map[*onnx.Node][]*onnx.Node{nodes[0]: {choice}})
	if err := g.RemoveNodes(dead); err != nil {
		panic(err)
	}
}

// TestProductsInBranches: onnxruntime opens and runs ops in branches, and weights that both branches read are stored
// once.
func TestProductsInBranches(t *testing.T) {
	for _, f := range storedForms[:5] {
		for _, name := range []string{"ort", "onnx"} {
			t.Run(f.format+", "+name, func(t *testing.T) {
				m := storedModel(t, f, onnx.Float)
				branched(m)
				inputs := storedInputs(onnx.Float)
				inputs["taken"] = reference.NewInts(onnx.Bool, []int{}, []int64{1})
				want := rewritetest.Run(t, m, inputs)
				r := applytest.Apply(t, m, rewrite.Request{Target: applytest.Target(t, name)})
				if r.Products == nil || len(r.Products.Open) > 0 {
					t.Fatalf("products %+v", r.Products)
				}
				rewritetest.RunsThere(t, m, inputs, want, 0.03)
				one := storedModel(t, f, onnx.Float)
				applytest.Apply(t, one, rewrite.Request{Target: applytest.Target(t, name)})
				if have, want := dataSize(t, m), dataSize(t, one); have != want {
					t.Errorf("%d bytes of weights, %d without branches", have, want)
				}
			})
		}
	}
}

// dataSize returns the size of a model's data file.
func dataSize(t *testing.T, m *onnx.Model) int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, m, onnx.ExternalDataOver(0)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path + ".data")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestProductsForTargets writes every format for onnxruntime and for the standard, and runs it in onnxruntime.
func TestProductsForTargets(t *testing.T) {
	for _, f := range storedForms {
		for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16} {
			if typ == onnx.Float16 && f.format != "q4_0" && f.format != "q4_1" && f.format != "mxfp4" {
				continue
			}
			want := rewritetest.Run(t, storedModel(t, f, typ), storedInputs(typ))
			for _, c := range []struct {
				target string
				level  int64
			}{{"ort", 0}, {"ort", 4}, {"onnx", 0}} {
				t.Run(fmt.Sprint(f.format, typ, c), func(t *testing.T) {
					m := storedModel(t, f, typ)
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
					f.look(t, m, c.target, c.level)
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
					compare(rewritetest.Run(t, m, storedInputs(typ)), exact)
					if c.level == 4 || c.target == "onnx" { // onnxruntime makes MatMulNBits with 8 bits of it, too
						exact = 0.03
					}
					compare(rewritetest.InOnnxruntime(t, m, storedInputs(typ)), exact)
				})
			}
		}
	}
}

// look compares the ops of a model with those that the form needs.
func (f storedForm) look(t *testing.T, m *onnx.Model, to string, level int64) {
	t.Helper()
	have := rewritetest.CountOps(m)
	sums, product, rows := 0, "MatMulNBits", "GatherBlockQuantized"
	if f.offset {
		sums = 1 // shared by both products
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

// TestExpertsForTargets writes experts after a router for onnxruntime, and runs them there.
func TestExpertsForTargets(t *testing.T) {
	const experts, hidden, inner, tokens = 5, 256, 512, 6
	by := map[string]storedForm{}
	for _, f := range storedForms {
		by[f.format] = f
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
			float := func(name string, dims ...int64) *onnx.Value {
				x := onnx.Type{DataType: onnx.Float, HasShape: true}
				for _, d := range dims {
					x.Dims = append(x.Dims, onnx.Dim{Value: d})
				}
				return m.Graph.AddInput(name, x)
			}
			add := func(op string, inputs []*onnx.Value, outputs []string, attrs ...*onnx.Attribute) []*onnx.Value {
				for inputs[len(inputs)-1] == nil {
					inputs = inputs[:len(inputs)-1]
				}
				var values []*onnx.Value
				for _, name := range outputs {
					values = append(values, m.Graph.NewValue(name))
				}
				n := m.Graph.AddNode(op, inputs, values, attrs...)
				n.Domain = fused.Domain
				s := fused.Site{Attributes: attrs, Opset: 23}
				for _, v := range inputs {
					typ, dims := onnx.Undefined, []int64(nil)
					if v != nil && v.Const != nil {
						typ, dims = v.Const.DataType, v.Const.Dims
					} else if v != nil && strings.HasPrefix(v.Name, "ids") {
						typ = onnx.Int64
					} else if v != nil {
						typ = onnx.Float
					}
					s.Types, s.Dims = append(s.Types, typ), append(s.Dims, dims)
				}
				f, err := fused.Lookup(op).Function(s)
				if err != nil {
					t.Fatal(err)
				}
				n.Overload = f.Overload
				m.Functions = append(m.Functions, f)
				return values
			}
			x, logits := float("x", 2, 3, hidden), float("logits", 2, 3, experts)
			ids := []int64{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}
			var route []*onnx.Value
			if c.score != "" {
				route = add("TopKRouter", []*onnx.Value{logits}, []string{"weights", "ids"}, onnx.IntAttr("top_k", 2),
					onnx.StringAttr("score", c.score), onnx.StringAttr("order", "score_first"),
					onnx.IntAttr("groups", 1), onnx.IntAttr("group_top_k", 1), onnx.StringAttr("group_score", "max"),
					onnx.FloatAttr("excluded_score", 0), onnx.IntAttr("renormalize", 1),
					onnx.FloatAttr("epsilon", 1e-20), onnx.FloatAttr("scale", 2.5))
			} else {
				chosen := onnx.NewInt64s("ids", ids)
				chosen.Dims = []int64{2, 3, 2}
				route = []*onnx.Value{float("weights", 2, 3, 2), m.Graph.AddInitializer(chosen)}
			}
			inputs := append([]*onnx.Value{x}, append(route, make([]*onnx.Value, 12)...)...)
			matrix := func(f storedForm, at [6]int, n, k int64, bias bool) *fused.Quantized {
				q := f.random(t, r, experts*n, k)
				for i, w := range q.Tensors() {
					if w != nil {
						w.Dims = append([]int64{experts, n / 16}, w.Dims[1:]...)
						inputs[at[i]] = m.Graph.AddInitializer(w)
					}
				}
				if bias {
					b := onnx.NewFloat32s("bias", []int64{experts, n}, make([]float32, experts*n))
					v, err := reference.FromONNX(b)
					if err != nil {
						t.Fatal(err)
					}
					for i := range v.F {
						v.F[i] = float64(r.IntN(16)) / 16
					}
					if b, err = v.ToONNX("bias"); err != nil {
						t.Fatal(err)
					}
					inputs[at[5]] = m.Graph.AddInitializer(b)
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
			y := add("QMoE", inputs, []string{"y"}, onnx.StringAttr("activation", c.activation),
				onnx.FloatAttr("alpha", 1), onnx.FloatAttr("limit", limit), onnx.FloatAttr("up_offset", 0),
				onnx.StringAttr("packing", c.packing), onnx.StringAttr("gate_up_code", up.Code),
				onnx.IntAttr("gate_up_zero", up.Zero),
				onnx.IntAttr("gate_up_block", up.Block), onnx.StringAttr("down_code", down.Code),
				onnx.IntAttr("down_zero", down.Zero), onnx.IntAttr("down_block", down.Block),
				onnx.IntAttr("hidden", hidden), onnx.IntAttr("inner", inner),
				onnx.StringAttr("activations", "float"))[0]
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

// TestRowsThatAreNotThere: a product with a wrong number of rows stays; those that share its weights do not.
func TestRowsThatAreNotThere(t *testing.T) {
	m := storedModel(t, storedForms[0], onnx.Float)
	for _, n := range m.Graph.Nodes {
		if n.Outputs[0].Name == "fewer" {
			n.SetAttr(onnx.IntAttr("n", 1<<40))
		}
	}
	r, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, "ort")})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Products.Open) != 1 || r.Products.Emits["MatMulNBits"] != 2 {
		t.Errorf("products %+v", r.Products)
	}
	if err := onnx.Write(filepath.Join(t.TempDir(), "model.onnx"), m); err != nil {
		t.Error(err)
	}
}

// TestRowsOfOneTable: products and tables that use different numbers of rows of one matrix are stored once in the data
// file.
func TestRowsOfOneTable(t *testing.T) {
	for _, f := range storedForms[:2] {
		m := storedModel(t, f, onnx.Float)
		if _, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, "ort")}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(path, m, onnx.ExternalDataOver(0)); err != nil {
			t.Fatal(err)
		}
		w, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]map[int64][]int64{} // of packed codes and of scales, by location
		for _, v := range w.Graph.Initializers() {
			for _, what := range []string{"packed", "scales"} {
				if x := v.Const.External; x != nil && strings.Contains(v.Name, what) {
					if rows[what] == nil {
						rows[what] = map[int64][]int64{}
					}
					rows[what][x.Offset] = append(rows[what][x.Offset], v.Const.Dims[0])
				}
			}
		}
		for _, what := range []string{"packed", "scales"} {
			if len(rows[what]) != 1 {
				t.Errorf("%s: %s lie at %d places", f.format, what, len(rows[what]))
			}
			for _, n := range rows[what] {
				slices.Sort(n)
				if n = slices.Compact(n); !slices.Equal(n, []int64{33, 37, 48}) {
					t.Errorf("%s: %s of %d rows", f.format, what, n)
				}
			}
		}
		got, want := rewritetest.Run(t, w, storedInputs(onnx.Float)), rewritetest.Run(t, m, storedInputs(onnx.Float))
		for name, x := range want {
			if !slices.Equal(x.F, got[name].F) {
				t.Errorf("%s: %s is not what it was before it was written", f.format, name)
			}
		}
	}
}
