package weights

import (
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

// casts write float32 elements as another type, rounded to nearest even, and return how many finite elements became
// infinite.
var casts = map[onnx.DataType]func(out []byte, in []float32) (overflows int64){
	onnx.Float: func(out []byte, in []float32) int64 {
		for i, x := range in {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
		}
		return 0
	},
	onnx.Double: func(out []byte, in []float32) int64 {
		for i, x := range in {
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(float64(x)))
		}
		return 0
	},
	onnx.Float16: func(out []byte, in []float32) (overflows int64) {
		for i, x := range in {
			h := float16.Fromfloat32(x).Bits()
			if h&0x7fff == 0x7c00 && !math.IsInf(float64(x), 0) {
				overflows++
			}
			binary.LittleEndian.PutUint16(out[2*i:], h)
		}
		return overflows
	},
	onnx.BFloat16: func(out []byte, in []float32) (overflows int64) {
		for i, x := range in {
			h := blocks.BFloat16(x)
			if h&0x7fff == 0x7f80 && !math.IsInf(float64(x), 0) {
				overflows++
			}
			binary.LittleEndian.PutUint16(out[2*i:], h)
		}
		return overflows
	},
}
