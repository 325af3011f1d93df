package target

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestTiledMoE draws random ids, so that tokens choose an expert twice. Both weights must add up.
func TestTiledMoE(t *testing.T) {
	const E, H, I, k = 4, 6, 3, 2
	of := func(packing string, types ...onnx.DataType) site {
		return site{op: "MoE", attrs: moeAttributes("silu", 1, 0, 0, packing, "out_in", "out_in"), types: types,
			dims: [][]int64{{-1, -1, H}, {-1, k}, {-1, k}, {E, 2 * I, H}, {E, H, I}},
			run:  [][]int{{2, 5, H}, {10, k}, {10, k}, {E, 2 * I, H}, {E, H, I}}}
	}
	const ops = "Reshape Tile Reshape Slice Slice com.microsoft.FusedMatMul Sigmoid Mul com.microsoft.FusedMatMul " +
		"Mul " +
		"com.microsoft.FusedMatMul Reshape " +
		"Shape Concat ConstantOfShape ScatterElements Transpose Reshape Unsqueeze Mul ReduceSum Shape Reshape"
	i64 := onnx.Int64
	taken(t, openvino, of("halves", f32, f32, i64, f32, f32), ops)
	taken(t, openvino, of("interleaved", f32, f32, i64, f32, f32), ops)
	stored := of("halves", f32, f32, i64, f32, f32)
	stored.attrs = moeAttributes("silu", 1, 0, 0, "interleaved", "in_out", "in_out")
	stored.dims[fused.MoEGateUp], stored.run[fused.MoEGateUp] = []int64{E, H, 2 * I}, []int{E, H, 2 * I}
	stored.dims[fused.MoEDown], stored.run[fused.MoEDown] = []int64{E, I, H}, []int{E, I, H}
	same(t, openvino, stored)
	same(t, openvino, of("halves", f16, f32, i64, f16, f16))
	same(t, openvino, of("halves", bf16, bf16, i64, bf16, bf16))

	for why, change := range map[string]func(*site){
		"only for SwiGLU":       func(s *site) { s.attrs = moeAttributes("gelu", 1, 0, 0, "halves", "out_in", "out_in") },
		"for SwiGLU":            func(s *site) { s.attrs = moeAttributes("silu", 1.702, 7, 1, "halves", "out_in", "out_in") },
		"fixed number":          func(s *site) { s.dims[0] = []int64{2, 5, H} },
		"known number":          func(s *site) { s.dims[3] = nil },
		"of the type of X":      func(s *site) { s.types = []onnx.DataType{f32, f32, i64, f16, f16} },
		"without biases":        func(s *site) { s.types = append(s.types, f32); s.dims = append(s.dims, []int64{E, 2 * I}) },
		"X is [?, ?, ?]":        func(s *site) { s.dims[0] = []int64{-1, -1, -1} },
		"the shape of down":     func(s *site) { s.dims[4] = nil },
		"width of experts: X i": func(s *site) { s.dims[2] = nil },
	} {
		s := of("halves", f32, f32, i64, f32, f32)
		change(&s)
		t.Run(why, func(t *testing.T) { open(t, openvino, s, why) })
	}
}
