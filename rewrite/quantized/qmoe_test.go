package quantized_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestMicrosoftMixtures: QMoE becomes mojo.TopKRouter and mojo.QMoE, with the same results in the evaluator, whose QMoE
// follows onnxruntime's (reference.TestQMoE).
func TestMicrosoftMixtures(t *testing.T) {
	const experts, hidden, inner, u8 = 5, 64, 96, onnx.Uint8
	i, f, s := onnx.IntAttr, onnx.FloatAttr, onnx.StringAttr
	gated := []*onnx.Attribute{s("activation_type", "swiglu"), i("swiglu_fusion", 1)}
	for _, c := range []struct {
		name          string
		bits, block   int
		parts         int
		biases, zeros bool
		weights, fc3  bool // the experts' weights are an input; gate and up are two matrices
		typ           onnx.DataType
		attrs         []*onnx.Attribute
		reason        string // why it stays
	}{
		{"rows", 4, 0, 2, false, false, false, false, onnx.Float, gated, ""},
		{"blocks", 4, 32, 2, true, false, false, false, onnx.Float, append(gated, i("k", 3),
			f("activation_alpha", 1.702), f("activation_beta", 1), f("swiglu_limit", 1.5)), ""},
		{"halves", 4, 32, 2, true, false, false, false, onnx.Float,
			[]*onnx.Attribute{s("activation_type", "swiglu"), i("swiglu_fusion", 2)}, ""},
		{"two matrices", 8, 32, 1, true, true, false, true, onnx.Float,
			[]*onnx.Attribute{s("activation_type", "swiglu"), f("activation_beta", 1)}, ""},
		{"zero points", 4, 32, 2, false, true, false, false, onnx.Float, gated, ""},
		{"zero points of rows", 4, 0, 2, false, true, false, false, onnx.Float, gated,
			"zero points of rows share bytes"},
		{"two bits, two counts", 2, 32, 2, false, false, false, false, onnx.Float,
			append(gated, i("fc2_expert_weight_bits", 2)), ""},
		{"bytes", 8, 16, 1, true, false, false, false, onnx.Float, []*onnx.Attribute{s("activation_type", "silu")}, ""},
		{"gelu", 4, 32, 1, false, false, false, false, onnx.Float, []*onnx.Attribute{s("activation_type", "gelu")}, ""},
		{"relu with weights", 4, 32, 1, false, false, true, false, onnx.Float,
			[]*onnx.Attribute{i("normalize_routing_weights", 0)}, ""},
		{"weights normalized", 4, 64, 2, false, false, true, false, onnx.Float, append(gated, i("k", 3)),
			"row length 96 is not a multiple of its block size 64"},
		{"weights normalized, float16", 4, 32, 2, true, false, true, false, onnx.Float16, append(gated, i("k", 3)),
			""},
		{"not normalized", 4, 32, 2, false, false, false, false, onnx.Float,
			append(gated, i("normalize_routing_weights", 0)), "normalize_routing_weights is 0"},
		{"sparse", 4, 32, 2, false, false, false, false, onnx.Float, append(gated, i("use_sparse_mixer", 1)),
			"sparse mixer"},
		{"fp4", 4, 32, 2, false, false, false, false, onnx.Float, append(gated, s("quant_type", "fp4")), "as fp4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newOther(t, c.typ)
			inputs := make([]*onnx.Value, 15)
			inputs[0], inputs[1] = m.In("x", "batch", "tokens", hidden), m.In("logits", "rows", experts)
			// The logits have one row per token.
			flat := m.Op("Reshape", inputs[0], m.Ints(-1, hidden))
			inputs[1] = m.Op("Slice", flat, m.Ints(0), m.Ints(experts), m.Ints(1))
			m.Model.Graph.Inputs = m.Model.Graph.Inputs[:1]
			matrices := func(weights, zeros, n, k int) {
				inputs[weights] = m.random(u8, experts, n, k*c.bits/8)
				dims, blocks, zero := []int{experts, n}, 1, []int{experts, (n*c.bits + 7) / 8}
				if c.block > 0 {
					blocks = k / c.block
					dims, zero = append(dims, blocks), []int{experts, n, (blocks*c.bits + 7) / 8}
				}
				inputs[weights+1] = m.random(c.typ, dims...)
				if c.zeros {
					inputs[zeros] = m.random(u8, zero...)
				}
				if c.biases {
					inputs[weights+2] = m.random(c.typ, experts, n)
				}
			}
			matrices(2, 11, c.parts*inner, hidden)
			matrices(5, 12, hidden, inner)
			if c.fc3 {
				matrices(8, 13, inner, hidden)
			}
			if c.weights {
				inputs[14] = m.Op("Sigmoid", inputs[1])
			}
			attrs := append([]*onnx.Attribute{i("k", 2), i("normalize_routing_weights", 1),
				i("expert_weight_bits", int64(c.bits)), i("weights_prepacked", 0)}, c.attrs...)
			if c.block > 0 {
				attrs = append(attrs, i("block_size", int64(c.block)))
			}
			byName := map[string]*onnx.Attribute{}
			for _, a := range attrs {
				byName[a.Name] = a
			}
			attrs = attrs[:0:0]
			for _, a := range byName {
				attrs = append(attrs, a)
			}
			y := m.Model.Graph.NewValue("y")
			for inputs[len(inputs)-1] == nil {
				inputs = inputs[:len(inputs)-1]
			}
			m.Model.Graph.AddNode("QMoE", inputs, []*onnx.Value{y}, attrs...).Domain = onnx.Microsoft
			m.Out(y, "batch", "tokens", hidden)
			if c.reason != "" {
				r := applytest.Apply(t, m.Model, rewrite.Request{OwnProducts: "float"})
				if n := rewritetest.CountOps(m.Model); n["QMoE"] != 1 || n["TopKRouter"] > 0 || r.Products == nil ||
					!strings.Contains(fmt.Sprint(r.Products.Open), c.reason) {
					t.Errorf("%v, %+v", n, r.Products)
				}
				return
			}
			want := rewritetest.Evaluate(t, m.Model)
			r := applytest.Apply(t, m.Model, rewrite.Request{OwnProducts: "float"})
			n := rewritetest.CountOps(m.Model)
			if n["QMoE"] != 1 || n["TopKRouter"] != 1 || n["MoE"] > 0 || len(r.Products.Open) > 0 || !r.Changed ||
				r.Products.Emits["mojo.QMoE instead of com.microsoft.QMoE"] != 1 ||
				c.typ == onnx.Float && r.Products.Check.MaxRel > 1e-5 {
				t.Errorf("%v, %+v", n, r.Products)
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
