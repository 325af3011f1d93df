package target

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func moeAttributes(activation string, alpha, limit, offset float32, packing, gateUp, down string) []*onnx.Attribute {
	return fused.MoE{GLU: fused.GLU{Activation: activation, Alpha: alpha, Limit: limit, UpOffset: offset},
		Packing: packing, GateUpLayout: gateUp, DownLayout: down}.Attributes()
}

// TestDenseMoE draws random ids, so that tokens choose an expert twice. Both weights must add up.
func TestDenseMoE(t *testing.T) {
	const E, H, I, k = 4, 6, 3, 2
	i64 := onnx.Int64
	for _, packing := range []string{"halves", "interleaved", "none"} {
		for _, activation := range []string{"silu", "gelu", "gelu_tanh", "relu", "relu2"} {
			for _, layout := range []string{"out_in", "in_out"} {
				rows := int64(2 * I)
				alpha, limit, offset := float32(1), float32(0.75), float32(1)
				if activation == "silu" {
					alpha = 1.702
				}
				if packing == "none" {
					rows, limit, offset = I, 0, 0
				}
				gateUp, down := []int64{E, rows, H}, []int64{E, H, I}
				if layout == "in_out" {
					gateUp, down = []int64{E, H, rows}, []int64{E, I, H}
				}
				s := site{op: "MoE", attrs: moeAttributes(activation, alpha, limit, offset, packing, layout, layout),
					types: []onnx.DataType{f32, f32, i64, f32, f32, f32, f32},
					dims:  [][]int64{{2, 5, H}, {10, k}, {2, 5, k}, gateUp, down, {E, rows}, {E, H}}}
				t.Run(fmt.Sprint(packing, activation, layout), func(t *testing.T) {
					ops := written(same(t, qnn, s))
					for _, other := range []string{"Scan", "Loop", "If", "Gather", "Scatter", "NonZero"} {
						if strings.Contains(ops, other) {
							t.Errorf("wrote %s", ops)
						}
					}
				})
			}
		}
	}
	s := site{op: "MoE", attrs: moeAttributes("silu", 1, 0, 0, "halves", "out_in", "in_out"),
		types: []onnx.DataType{f16, f32, i64, f16, f16},
		dims:  [][]int64{{5, H}, {5, k}, {5, k}, {E, 2 * I, H}, {E, I, H}}}
	t.Run("float16, no biases", func(t *testing.T) { same(t, qnn, s) })
	s.types = []onnx.DataType{f32, f32, i64, f16, f16}
	t.Run("narrow weights", func(t *testing.T) { same(t, qnn, s) })
	s.dims = [][]int64{{-1, -1, H}, {-1, k}, {-1, k}, {E, 2 * I, H}, {E, I, H}}
	s.run = [][]int{{1, 5, H}, {5, k}, {5, k}, {E, 2 * I, H}, {E, I, H}}
	t.Run("how many tokens is unknown", func(t *testing.T) { same(t, qnn, s) })
	s.dims[fused.MoEIDs] = []int64{-1, -1}
	open(t, qnn, s, "number of chosen experts")
	s.dims[fused.MoEIDs], s.dims[fused.MoEGateUp] = []int64{-1, k}, nil
	open(t, qnn, s, "number and width of experts")
	s.dims[fused.MoEGateUp], s.dims[fused.MoEDown] = []int64{E, 2 * I, H}, []int64{E, -1, H}
	open(t, qnn, s, "the shape of down")
	s.types = []onnx.DataType{f32, f32, i64, bf16, bf16}
	open(t, qnn, s, "bfloat16")
}
