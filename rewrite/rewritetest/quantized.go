package rewritetest

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Quantized returns n rows of k int8 codes with the zero point 128 and one scale, and the floats that they represent.
func Quantized(name string, n, k int64) (*fused.Quantized, []float32) {
	panels := (n + 15) / 16
	codes, scale := make([]byte, panels*k*16), make([]float32, panels*k/32*16)
	floats := make([]float32, n*k)
	for i := range scale {
		scale[i] = 0.25
	}
	for r := range n {
		for c := range k {
			code := byte(100 + (r*31+c*7)%57)
			codes[(r/16*(k/32)+c/32)*512+c%32/4*64+r%16*4+c%4] = code
			floats[r*k+c] = 0.25 * (float32(code) - 128)
		}
	}
	t, err := onnx.NewTensor(name+"_codes", onnx.Uint8, []int64{panels, k / 32, 8, 64}, codes)
	if err != nil {
		panic(err)
	}
	return &fused.Quantized{Format: "test", Code: "int8", Zero: 128, Block: 32, N: n, K: k, Codes: t,
		Scale: onnx.NewFloat32s(name+"_scale", []int64{panels, k / 32, 16}, scale)}, floats
}
