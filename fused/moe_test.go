package fused

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// routerForm has the attributes of TopKRouter; 0 means 1 for a number that cannot be 0.
type routerForm struct {
	k             int64
	score, order  string
	groups, kept  int64
	groupScore    string
	excluded      float32
	renormalize   int64
	epsilon, scal float32
}

func (f routerForm) attrs() []*onnx.Attribute {
	pick := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	if f.scal == 0 {
		f.scal = 1
	}
	return []*onnx.Attribute{onnx.IntAttr("top_k", max(f.k, 1)), onnx.StringAttr("score", pick(f.score, "softmax")),
		onnx.StringAttr("order", pick(f.order, "score_first")), onnx.IntAttr("groups",
			max(f.groups, 1)), onnx.IntAttr("group_top_k", max(f.kept, 1)),
		onnx.StringAttr("group_score", pick(f.groupScore, "max")), onnx.FloatAttr("excluded_score", f.excluded),
		onnx.IntAttr("renormalize", f.renormalize), onnx.FloatAttr("epsilon", f.epsilon),
		onnx.FloatAttr("scale", f.scal)}
}

// moeForm is the attributes of MoE, with the same zero values.
type moeForm struct {
	activation           string
	alpha, limit, offset float32
	packing, up, down    string
}

func (f moeForm) attrs() []*onnx.Attribute {
	pick := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	if f.alpha == 0 {
		f.alpha = 1
	}
	return append(gluAttrs(pick(f.activation, "silu"), f.alpha, f.limit, f.offset),
		onnx.StringAttr("packing", pick(f.packing, "halves")),
		onnx.StringAttr("gate_up_layout", pick(f.up, "out_in")), onnx.StringAttr("down_layout", pick(f.down, "out_in")))
}

var negativeInfinity = float32(math.Inf(-1))

func addRouterBodies(add addCase, opset int64) {
	types := []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16}
	for i, f := range []routerForm{
		{k: 2},
		{k: 2, renormalize: 1, scal: 2.5},
		{k: 4, order: "top_k_first"},
		{k: 1, order: "top_k_first", score: "sigmoid"},
		{k: 3, score: "sigmoid", renormalize: 1, epsilon: 0.125}, {k: 3, score: "sqrtsoftplus", renormalize: 1,
			epsilon: 1e-20, scal: 1.5},
		{k: 6, groups: 4, kept: 2, scal: 16},
		{k: 4, score: "sigmoid", groups: 4, kept: 2, groupScore: "top2_sum", excluded: negativeInfinity, renormalize: 1,
			epsilon: 1e-20, scal: 2.5},
	} {
		t := types[(int64(i)+opset)%3] // each with every type, over the opsets in turn
		add(topKRouter, f.attrs(), []onnx.DataType{t}, []int64{2, 3, 16})
		add(topKRouter, f.attrs(), []onnx.DataType{t, onnx.Float}, []int64{5, 16}, []int64{16})
		add(topKRouter, f.attrs(), []onnx.DataType{t, t}, []int64{0, 16}, []int64{16})
	}
	add(topKRouter, routerForm{k: 2}.attrs(), []onnx.DataType{onnx.Float}, []int64{8})
}

// addMoEBodies has hidden rows of 6, experts of 10 channels, four of them.
func addMoEBodies(add addCase, opset int64) {
	const f32, f16, bf16, i64 = onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64
	weights := func(f moeForm) (gateUp, down, gateUpBias, downBias []int64) {
		packed := int64(20)
		if f.packing == "none" {
			packed = 10
		}
		gateUp, down = []int64{4, packed, 6}, []int64{4, 6, 10}
		if f.up == "in_out" {
			gateUp = []int64{4, 6, packed}
		}
		if f.down == "in_out" {
			down = []int64{4, 10, 6}
		}
		return gateUp, down, []int64{4, packed}, []int64{4, 6}
	}
	forms := []moeForm{{}, {activation: "gelu", packing: "interleaved", up: "in_out"},
		{activation: "gelu_tanh", down: "in_out"},
		{activation: "relu", packing: "none", up: "in_out", down: "in_out"}, {activation: "gelu", packing: "none"},
		{activation: "relu2", packing: "none"}, {activation: "relu2", up: "in_out"},
		{alpha: 1.702, limit: 1.5, offset: 1, packing: "interleaved", up: "in_out", down: "in_out"}}
	for i, f := range forms {
		gateUp, down, gateUpBias, downBias := weights(f)
		// Every form with every type of weights, over the opsets in turn.
		t, v := []onnx.DataType{f32, f16, bf16}[i%3], []onnx.DataType{f32, bf16, f16}[(int64(i)+opset)%3]
		add(moe, f.attrs(), []onnx.DataType{t, f32, i64, v, v}, []int64{2, 5, 6}, []int64{10, 3}, []int64{10, 3},
			gateUp,
			down)
		add(moe, f.attrs(), []onnx.DataType{t, t, i64, v, v, v, v}, []int64{7, 6}, []int64{7, 2}, []int64{7, 2}, gateUp,
			down, gateUpBias, downBias)
	}
	gateUp, down, gateUpBias, downBias := weights(moeForm{})
	for _, t := range []onnx.DataType{f32, f16, bf16} {
		add(moe, moeForm{}.attrs(), []onnx.DataType{f32, f32, i64, t, t, onnx.Undefined, t}, []int64{1, 6},
			[]int64{1, 1},
			[]int64{1, 1, 1}, gateUp, down, nil, downBias)
		add(moe, moeForm{}.attrs(), []onnx.DataType{t, f32, i64, t, t, t}, []int64{0, 6}, []int64{0, 2}, []int64{0, 2},
			gateUp, down, gateUpBias)
	}
}

func TestMoESupports(t *testing.T) {
	const f32, f16, bf16, i64, none = onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64, onnx.Undefined
	x, k, up, down := []int64{7, 6}, []int64{7, 2}, []int64{4, 20, 6}, []int64{4, 6, 10}
	base := []onnx.DataType{f32, f32, i64, f32, f32}
	with := func(types ...onnx.DataType) []onnx.DataType {
		return append(append([]onnx.DataType(nil), base...), types...)
	}
	tests := []supportsCase{
		{"moe", moe, moeForm{}.attrs(), base, [][]int64{x, k, k, up, down}, ""},
		{"moe, shapes unknown", moe, moeForm{}.attrs(), base, nil, ""},
		{"moe, half the shapes", moe, moeForm{}.attrs(), base, [][]int64{{-1, -1, 6}, nil, {-1, 2}, {-1, 20, -1}}, ""},
		{"moe, biases", moe, moeForm{}.attrs(), with(f32, f32), [][]int64{x, k, k, up, down, {4, 20}, {4, 6}}, ""},
		{"moe, one bias", moe, moeForm{}.attrs(), with(none, f32), [][]int64{x, k, k, up, down, nil, {4, 6}}, ""},
		{"moe, three types", moe, moeForm{}.attrs(), []onnx.DataType{f16, f32, i64, bf16, bf16}, nil, ""},
		{"moe, weights of another type", moe, moeForm{}.attrs(), []onnx.DataType{f16, bf16, i64, f16, f16}, nil,
			"weights of float32 or the type of X"},
		{"moe, ids of int32", moe, moeForm{}.attrs(), []onnx.DataType{f32, f32, onnx.Int32, f32, f32}, nil, "int64"},
		{"moe, experts of two types", moe, moeForm{}.attrs(), []onnx.DataType{f32, f32, i64, f16, f32}, nil,
			"one type"},
		{"moe of double", moe, moeForm{}.attrs(), []onnx.DataType{onnx.Double, f32, i64, f32, f32}, nil, "not float64"},
		{"moe without ids", moe, moeForm{}.attrs(), []onnx.DataType{f32, f32, none, f32, f32}, nil, "ids is missing"},
		{"moe without down", moe, moeForm{}.attrs(), base[:4], nil, "down is missing"},
		{"moe of eight inputs", moe, moeForm{}.attrs(), with(f32, f32, f32), nil, "takes 7 inputs"},
		{"moe, other layout", moe, moeForm{up: "in_out"}.attrs(), base, [][]int64{x, k, k, up, down},
			"gate_up of shape [E, H, G], here [E, 6, G]"},
		{"moe, other down layout", moe, moeForm{down: "in_out"}.attrs(), base, [][]int64{x, k, k, up, down},
			"down of shape [E, I, H], here [4, 10, 6]"},
		{"moe, no gate", moe, moeForm{packing: "none"}.attrs(), base, [][]int64{x, k, k, {4, 10, 6}, down}, ""},
		{"moe, a gate after all", moe, moeForm{packing: "none"}.attrs(), base, [][]int64{x, k, k, up, down},
			"down of shape"},
		{"moe, no gate but a limit", moe, moeForm{packing: "none", limit: 1}.attrs(), base, nil, "limit"},
		{"moe, odd rows", moe, moeForm{}.attrs(), base, [][]int64{x, k, k, {4, 21, 6}, down},
			"gate and up of one width: 2 divides G, here 2 and 21"},
		{"moe, other experts", moe, moeForm{}.attrs(), base, [][]int64{x, k, k, up, {5, 6, 10}}, "down of shape"},
		{"moe, bias of other experts", moe, moeForm{}.attrs(), with(f32), [][]int64{x, k, k, up, down, {5, 20}},
			"gate_up_bias of shape"},
		{"moe, narrow bias", moe, moeForm{}.attrs(), with(none, f32), [][]int64{x, k, k, up, down, nil, {4, 5}},
			"down_bias of shape"},
		{"moe, other tokens", moe, moeForm{}.attrs(), base, [][]int64{x, {8, 2}, k, up, down},
			"as many weights as tokens"},
		{"moe, other k", moe, moeForm{}.attrs(), base, [][]int64{x, {7, 3}, k, up, down},
			"ids of shape [U..., K], here [U..., 3]"},
		{"moe, relu with alpha", moe, moeForm{activation: "relu", alpha: 2}.attrs(), base, nil, "alpha"},
		{"router", topKRouter, routerForm{k: 2}.attrs(), []onnx.DataType{f16}, [][]int64{{3, 8}}, ""},
		{"router, bias", topKRouter, routerForm{k: 2}.attrs(), []onnx.DataType{f16, f32}, [][]int64{{3, 8}, {8}}, ""},
		{"router, broadcast bias", topKRouter, routerForm{k: 2}.attrs(), []onnx.DataType{f16, f32},
			[][]int64{{3, 8}, {1, 8}}, "correction_bias"},
		{"router of integers", topKRouter, routerForm{k: 2}.attrs(), []onnx.DataType{i64}, nil, "not int64"},
		{"router, k of more than there are", topKRouter, routerForm{k: 9}.attrs(), []onnx.DataType{f32},
			[][]int64{{3, 8}},
			"experts to choose from: top_k <= group_top_k*(E/groups), here 9 and 8"},
		{"router, k of more than in the groups", topKRouter, routerForm{k: 3, groups: 4, kept: 1}.attrs(),
			[]onnx.DataType{f32}, [][]int64{{3, 8}}, "here 3 and 2"},
		{"router, groups that do not divide", topKRouter, routerForm{k: 1, groups: 3, kept: 1}.attrs(),
			[]onnx.DataType{f32},
			[][]int64{{3, 8}}, "divide"},
		{"router, groups of one", topKRouter, routerForm{k: 1, groups: 8, kept: 2, groupScore: "top2_sum"}.attrs(),
			[]onnx.DataType{f32}, [][]int64{{3, 8}}, "two experts or more"},
		{"router, groups after the choice", topKRouter, routerForm{k: 1, groups: 2, order: "top_k_first"}.attrs(),
			[]onnx.DataType{f32}, nil, "groups is 2"},
		{"router, too many groups kept", topKRouter, routerForm{k: 1, groups: 2, kept: 3}.attrs(), []onnx.DataType{f32},
			nil,
			"group_top_k"},
		{"router, another excluded score", topKRouter, routerForm{k: 1, excluded: 1}.attrs(), []onnx.DataType{f32}, nil,
			"excluded_score"},
		{"router, negative epsilon", topKRouter, routerForm{k: 1, epsilon: -1}.attrs(), []onnx.DataType{f32}, nil,
			"epsilon"},
		{"router of a scalar", topKRouter, routerForm{k: 1}.attrs(), []onnx.DataType{f32}, [][]int64{{}},
			"logits of shape [A..., E]"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}
