package moe_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestMoESupports(t *testing.T) {
	type form = optest.MoeForm
	const f32, f16, bf16, i64, none = onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64, onnx.Undefined
	x, k, up, down := []int64{7, 6}, []int64{7, 2}, []int64{4, 20, 6}, []int64{4, 6, 10}
	base := []onnx.DataType{f32, f32, i64, f32, f32}
	with := func(types ...onnx.DataType) []onnx.DataType {
		return append(append([]onnx.DataType(nil), base...), types...)
	}
	tests := []optest.SupportsCase{
		{"moe", moe.Op, form{}.Attrs(), base, [][]int64{x, k, k, up, down}, ""},
		{"moe, shapes unknown", moe.Op, form{}.Attrs(), base, nil, ""},
		{"moe, half the shapes", moe.Op, form{}.Attrs(), base, [][]int64{{-1, -1, 6}, nil, {-1, 2}, {-1, 20, -1}}, ""},
		{"moe, biases", moe.Op, form{}.Attrs(), with(f32, f32), [][]int64{x, k, k, up, down, {4, 20}, {4, 6}}, ""},
		{"moe, one bias", moe.Op, form{}.Attrs(), with(none, f32), [][]int64{x, k, k, up, down, nil, {4, 6}}, ""},
		{"moe, three types", moe.Op, form{}.Attrs(), []onnx.DataType{f16, f32, i64, bf16, bf16}, nil, ""},
		{"moe, weights of another type", moe.Op, form{}.Attrs(), []onnx.DataType{f16, bf16, i64, f16, f16}, nil,
			"weights of float32 or the type of X"},
		{"moe, ids of int32", moe.Op, form{}.Attrs(), []onnx.DataType{f32, f32, onnx.Int32, f32, f32}, nil, "int64"},
		{"moe, experts of two types", moe.Op, form{}.Attrs(), []onnx.DataType{f32, f32, i64, f16, f32}, nil,
			"one type"},
		{"moe of double", moe.Op, form{}.Attrs(), []onnx.DataType{onnx.Double, f32, i64, f32, f32}, nil, "not float64"},
		{"moe without ids", moe.Op, form{}.Attrs(), []onnx.DataType{f32, f32, none, f32, f32}, nil, "ids is missing"},
		{"moe without down", moe.Op, form{}.Attrs(), base[:4], nil, "down is missing"},
		{"moe of eight inputs", moe.Op, form{}.Attrs(), with(f32, f32, f32), nil, "takes 7 inputs"},
		{"moe, other layout", moe.Op, form{Up: "in_out"}.Attrs(), base, [][]int64{x, k, k, up, down},
			"gate_up of shape [E, H, G], here [E, 6, G]"},
		{"moe, other down layout", moe.Op, form{Down: "in_out"}.Attrs(), base, [][]int64{x, k, k, up, down},
			"down of shape [E, I, H], here [4, 10, 6]"},
		{"moe, no gate", moe.Op, form{Packing: "none"}.Attrs(), base, [][]int64{x, k, k, {4, 10, 6}, down}, ""},
		{"moe, a gate after all", moe.Op, form{Packing: "none"}.Attrs(), base, [][]int64{x, k, k, up, down},
			"down of shape"},
		{"moe, no gate but a limit", moe.Op, form{Packing: "none", Limit: 1}.Attrs(), base, nil, "limit"},
		{"moe, odd rows", moe.Op, form{}.Attrs(), base, [][]int64{x, k, k, {4, 21, 6}, down},
			"gate and up of one width: 2 divides G, here 2 and 21"},
		{"moe, other experts", moe.Op, form{}.Attrs(), base, [][]int64{x, k, k, up, {5, 6, 10}}, "down of shape"},
		{"moe, bias of other experts", moe.Op, form{}.Attrs(), with(f32), [][]int64{x, k, k, up, down, {5, 20}},
			"gate_up_bias of shape"},
		{"moe, narrow bias", moe.Op, form{}.Attrs(), with(none, f32), [][]int64{x, k, k, up, down, nil, {4, 5}},
			"down_bias of shape"},
		{"moe, other tokens", moe.Op, form{}.Attrs(), base, [][]int64{x, {8, 2}, k, up, down},
			"as many weights as tokens"},
		{"moe, other k", moe.Op, form{}.Attrs(), base, [][]int64{x, {7, 3}, k, up, down},
			"ids of shape [U..., K], here [U..., 3]"},
		{"moe, relu with alpha", moe.Op, form{Activation: "relu", Alpha: 2}.Attrs(), base, nil, "alpha"},
	}
	optest.RunSupports(t, tests)
}
