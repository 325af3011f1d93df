package quantized_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// expertProducts multiplies rows of k columns by an expert's matrix with n rows.
type expertProducts func(m *otherModel, x *onnx.Value, expert, n, k int) *onnx.Value

func nBitsProducts(bits, block int, zeros bool) expertProducts {
	return func(m *otherModel, x *onnx.Value, _, n, k int) *onnx.Value {
		count := (k + block - 1) / block
		inputs := []*onnx.Value{x, m.random(onnx.Uint8, n, count, block*bits/8), m.random(m.Type, n, count)}
		if zeros {
			inputs = append(inputs, m.random(onnx.Uint8, n, (count*bits+7)/8))
		}
		y := m.Model.Graph.NewValue("y")
		m.Model.Graph.AddNode("MatMulNBits", inputs, []*onnx.Value{y}, onnx.IntAttr("N", int64(n)),
			onnx.IntAttr("K", int64(k)), onnx.IntAttr("bits", int64(bits)), onnx.IntAttr("block_size", int64(block)),
			onnx.IntAttr("accuracy_level", 0)).Domain = onnx.Microsoft
		return y
	}
}

// blockProducts use DequantizeLinear with blocks along k before MatMul. rowProducts have one scale per row, or a single
// one.
func blockProducts(m *otherModel, x *onnx.Value, _, n, k int) *onnx.Value {
	return m.Op("MatMul", x, m.Op("DequantizeLinear", m.random(onnx.Int4, k, n), m.random(m.Type, k/32, n),
		onnx.IntAttr("axis", 0), onnx.IntAttr("block_size", 32)))
}

func rowProducts(m *otherModel, x *onnx.Value, _, n, k int) *onnx.Value {
	w := m.Op("DequantizeLinear", m.random(onnx.Int8, n, k), m.random(m.Type, n), onnx.IntAttr("axis", 0))
	return m.Op("MatMul", x, m.Op("Transpose", w, onnx.IntsAttr("perm", []int64{1, 0})))
}

// quantizedMixture returns a router with experts that process every token; only the chosen results count.
func quantizedMixture(t *testing.T, typ onnx.DataType, hidden, inner int, product expertProducts) *otherModel {
	const experts = 4
	m := newOther(t, typ)
	x := m.In("x", "tokens", hidden)
	scores := m.Op("Softmax", m.Op("MatMul", x, m.random(typ, hidden, experts)), onnx.IntAttr("axis", -1))
	weights, ids := m.Model.Graph.NewValue("weights"), m.Model.Graph.NewValue("ids")
	m.Model.Graph.AddNode("TopK", []*onnx.Value{scores, m.Ints(2)}, []*onnx.Value{weights, ids})
	var y *onnx.Value
	for e := range experts {
		gate := product(m, x, e, inner, hidden)
		gate = m.Op("Mul", gate, m.Op("Sigmoid", gate))
		out := product(m, m.Op("Mul", gate, product(m, x, e, inner, hidden)), e, hidden, inner)
		is := m.Op("Cast", m.Op("Equal", ids, m.Ints(int64(e))), onnx.IntAttr("to", int64(typ)))
		out = m.Op("Mul", out, m.Op("ReduceSum", m.Op("Mul", is, weights), m.Ints(-1)))
		if y != nil {
			out = m.Op("Add", y, out)
		}
		y = out
	}
	m.Out(y, "tokens", hidden)
	return m
}

// stackedMixture gathers the stacked matrices of the chosen experts for each token.
func stackedMixture(t *testing.T, typ onnx.DataType, elements onnx.DataType) *otherModel {
	const experts, hidden, inner, k = 4, 64, 32, 2
	m := newOther(t, typ)
	x := m.In("x", "tokens", hidden)
	scores := m.Op("Softmax", m.Op("MatMul", x, m.random(typ, hidden, experts)), onnx.IntAttr("axis", -1))
	weights, ids := m.Model.Graph.NewValue("weights"), m.Model.Graph.NewValue("ids")
	m.Model.Graph.AddNode("TopK", []*onnx.Value{scores, m.Ints(k)}, []*onnx.Value{weights, ids})
	flat := m.Op("Reshape", ids, m.Ints(-1))
	stack := func(out, in int) *onnx.Value { // blocks along the second to last axis
		w := m.Op("DequantizeLinear", m.random(elements, experts, in, out), m.random(typ, experts, in/32, out),
			onnx.IntAttr("axis", 1), onnx.IntAttr("block_size", 32))
		return m.Op("Gather", w, flat, onnx.IntAttr("axis", 0))
	}
	rows := m.Op("Reshape", m.Op("Expand", m.Op("Unsqueeze", x, m.Ints(1)), m.Ints(1, k, 1)), m.Ints(-1, 1, hidden))
	h := m.Op("MatMul", rows, stack(2*inner, hidden))
	gate := m.Op("Slice", h, m.Ints(0), m.Ints(inner), m.Ints(2))
	up := m.Op("Slice", h, m.Ints(inner), m.Ints(1<<40), m.Ints(2))
	out := m.Op("MatMul", m.Op("Mul", m.Op("Mul", gate, m.Op("Sigmoid", gate)), up), stack(hidden, inner))
	out = m.Op("Mul", m.Op("Reshape", out, m.Ints(-1, hidden)), m.Op("Reshape", weights, m.Ints(-1, 1)))
	m.Out(m.Op("ReduceSum", m.Op("Reshape", out, m.Ints(-1, k, hidden)), m.Ints(1), onnx.IntAttr("keepdims", 0)),
		"tokens", hidden)
	return m
}

// TestQuantizedExperts finds mixtures whose products another tool quantized. They stay, or become mojo.QMoE with the
// same results.
func TestQuantizedExperts(t *testing.T) {
	for name, c := range map[string]struct {
		model  func() *otherModel
		reason string // why it stays; "": becomes mojo.QMoE
	}{
		"4 bits": {func() *otherModel {
			return quantizedMixture(t, onnx.Float, 64, 32, nBitsProducts(4, 32, false))
		}, ""},
		"8 bits, blocks of 16, zero points": {func() *otherModel {
			return quantizedMixture(t, onnx.Float, 32, 96, nBitsProducts(8, 16, true))
		}, ""},
		"4 bits, float16": {func() *otherModel {
			return quantizedMixture(t, onnx.Float16, 64, 32, nBitsProducts(4, 32, false))
		}, ""},
		"blocks":           {func() *otherModel { return quantizedMixture(t, onnx.Float, 64, 32, blockProducts) }, ""},
		"rows, turned":     {func() *otherModel { return quantizedMixture(t, onnx.Float, 32, 64, rowProducts) }, ""},
		"stacked":          {func() *otherModel { return stackedMixture(t, onnx.Float, onnx.Int4) }, ""},
		"stacked, float16": {func() *otherModel { return stackedMixture(t, onnx.Float16, onnx.Uint8) }, ""},
		"rows of 48": {func() *otherModel {
			return quantizedMixture(t, onnx.Float, 64, 48, nBitsProducts(4, 32, false))
		}, "not a multiple of 32"},
		"two ways": {func() *otherModel {
			return quantizedMixture(t, onnx.Float, 64, 32, func(m *otherModel, x *onnx.Value, e, n, k int) *onnx.Value {
				return nBitsProducts(4+e/3*4, 32, false)(m, x, e, n, k)
			})
		}, "in different ways"},
		"one in floats": {func() *otherModel {
			return quantizedMixture(t, onnx.Float, 64, 32, func(m *otherModel, x *onnx.Value, e, n, k int) *onnx.Value {
				if e == 3 {
					return m.Op("MatMul", x, m.random(onnx.Float, k, n))
				}
				return nBitsProducts(4, 32, false)(m, x, e, n, k)
			})
		}, "is stored as floats"},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.model()
			before, want := rewritetest.CountOps(m.Model), rewritetest.Evaluate(t, m.Model)
			r := applytest.Apply(t, m.Model)
			site := mixtureSite(r)
			if n := rewritetest.CountOps(m.Model); n["MoE"]+n["QMoE"] > 0 || site == nil ||
				site.Status != rewrite.Refused ||
				site.Code != reason.ExpertsQuantized || n["MatMulNBits"] != before["MatMulNBits"] ||
				n["DequantizeLinear"] != before["DequantizeLinear"] || n["MatMul"] != before["MatMul"] ||
				n["TopKRouter"] != 1 {
				t.Errorf("%v of %v, %+v", n, before, site)
			}
			sameOutputs(t, m, want, rewritetest.Evaluate(t, m.Model))
			m = c.model()
			r = applytest.Apply(t, m.Model, rewrite.Request{OwnProducts: "float"})
			n, site := rewritetest.CountOps(m.Model), mixtureSite(r)
			if c.reason != "" {
				if n["MoE"]+n["QMoE"] > 0 || site == nil || !strings.Contains(site.Reason, c.reason) {
					t.Errorf("%v, %+v", n, site)
				}
			} else if n["QMoE"] != 1 || n["MoE"]+n["MatMulNBits"]+n["DequantizeLinear"] > 0 ||
				len(r.Products.Open) > 0 || !strings.Contains(r.Products.Text(), "1 mojo.QMoE instead of ") ||
				site == nil || site.Status != rewrite.Fused {
				t.Errorf("%v, %+v, %+v", n, r.Products, site)
			}
			for _, v := range m.Model.Graph.Initializers() {
				if len(v.Uses()) == 0 || v.Const.IsComputed() {
					t.Errorf("%q stays, which nothing reads, or is not to be stored", v.Name)
				}
			}
			sameOutputs(t, m, want, rewritetest.Evaluate(t, m.Model))
		})
	}
}

func mixtureSite(r *rewrite.Report) *rewrite.SiteReport {
	for i, s := range r.Sites {
		if s.Pattern == "MoE" {
			return &r.Sites[i]
		}
	}
	return nil
}

func sameOutputs(t *testing.T, m *otherModel, want, got map[string]*reference.Tensor) {
	t.Helper()
	tolerance := 3e-6
	if m.Type == onnx.Float16 {
		tolerance = 4e-3
	}
	for name, x := range want {
		d, scale := prove.Distance(x.F, got[name].F)
		if x.DataType != got[name].DataType || !(d <= tolerance*scale) {
			t.Errorf("%s %s differs by %g of %g", got[name], name, d, scale)
		}
	}
}
