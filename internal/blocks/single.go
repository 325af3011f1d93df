package blocks

import (
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Reader converts len(dst) elements of src to float32. src must contain that many.
type Reader func(dst []float32, src []byte)

// ReaderOf returns the reader of a type, or nil if float32 cannot hold its elements (complex numbers), elements share
// bytes (types of less than 8 bits), or they are not numbers (strings).
//
// Integers and float64 are rounded to the nearest float32, ties to even; numbers that are too large become infinite.
// Narrower floats are exact, including infinities and the bits of NaN. A boolean is 1 if its byte is not 0.
func ReaderOf(t onnx.DataType) Reader {
	if values := Values(t); values != nil && t.Bits() == 8 {
		return func(dst []float32, src []byte) {
			src = src[:len(dst)]
			for i, b := range src {
				dst[i] = values[b]
			}
		}
	}
	return readers[t]
}

var le = binary.LittleEndian

var readers = map[onnx.DataType]Reader{
	onnx.Float: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	},
	onnx.Float16: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = Float16(le.Uint16(src[2*i:]))
		}
	},
	onnx.BFloat16: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16)
		}
	},
	onnx.Double: each(8, func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) }),
	onnx.Int16:  each(2, func(b []byte) float32 { return float32(int16(le.Uint16(b))) }),
	onnx.Uint16: each(2, func(b []byte) float32 { return float32(le.Uint16(b)) }),
	onnx.Int32:  each(4, func(b []byte) float32 { return float32(int32(le.Uint32(b))) }),
	onnx.Uint32: each(4, func(b []byte) float32 { return float32(le.Uint32(b)) }),
	onnx.Int64:  each(8, func(b []byte) float32 { return float32(int64(le.Uint64(b))) }),
	onnx.Uint64: each(8, func(b []byte) float32 { return float32(le.Uint64(b)) }),
}

// each returns the reader of a rare type, which calls a function for every element.
func each(width int, value func(b []byte) float32) Reader {
	return func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = value(src[width*i:])
		}
	}
}

// Float16 returns the value of an IEEE half. A NaN keeps its bits, even if it is signaling.
func Float16(h uint16) float32 {
	sign, magnitude := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case magnitude >= 0x7c00: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | magnitude<<13&0x7fffff)
	case magnitude >= 0x0400:
		return math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
	}
	return math.Float32frombits(sign | math.Float32bits(float32(magnitude)*(1.0/(1<<24))))
}
