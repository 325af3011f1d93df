package elements

import (
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var le = binary.LittleEndian

// DecodeFloats decodes floats of a type from their bytes.
func DecodeFloats(dst []float64, b []byte, t onnx.DataType) {
	switch t {
	case onnx.Float:
		for i := range dst {
			dst[i] = float64(math.Float32frombits(le.Uint32(b[4*i:])))
		}
	case onnx.Double:
		for i := range dst {
			dst[i] = math.Float64frombits(le.Uint64(b[8*i:]))
		}
	case onnx.Float16:
		for i := range dst {
			dst[i] = float64(blocks.Float16(le.Uint16(b[2*i:])))
		}
	case onnx.BFloat16:
		for i := range dst {
			dst[i] = float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
		}
	default:
		values, bits := blocks.Values(t), t.Bits()
		for i := range dst {
			dst[i] = float64(values[packedAt(b, i, bits)])
		}
	}
}

// EncodeFloats rounds floats to a type and returns their bytes.
func EncodeFloats(v []float64, t onnx.DataType) []byte {
	b := make([]byte, (len(v)*t.Bits()+7)/8)
	switch t {
	case onnx.Float:
		for i, x := range v {
			le.PutUint32(b[4*i:], math.Float32bits(float32(x)))
		}
	case onnx.Double:
		for i, x := range v {
			le.PutUint64(b[8*i:], math.Float64bits(x))
		}
	case onnx.Float16:
		for i, x := range v {
			le.PutUint16(b[2*i:], encodeFloat16(roundFloat16(x)))
		}
	case onnx.BFloat16:
		for i, x := range v {
			le.PutUint16(b[2*i:], uint16(math.Float32bits(float32(roundBFloat16(x)))>>16))
		}
	default:
		f := FormatOf(t)
		bits := t.Bits()
		for i, x := range v {
			putPacked(b, i, bits, f.encode(f.Round(x, true)))
		}
	}
	return b
}

// packedAt reads element i of at most 8 bits; the first element of a byte is in its low bits.
func packedAt(b []byte, i, bits int) byte {
	per := 8 / bits
	return b[i/per] >> (i % per * bits) & byte(1<<bits-1)
}

func putPacked(b []byte, i, bits int, v byte) {
	per := 8 / bits
	b[i/per] |= v & byte(1<<bits-1) << (i % per * bits)
}

// DecodeInts decodes integers of a type from their bytes.
func DecodeInts(dst []int64, b []byte, t onnx.DataType) {
	bits := t.Bits()
	for i := range dst {
		switch bits {
		case 64:
			dst[i] = int64(le.Uint64(b[8*i:]))
		case 32:
			dst[i] = Wrap(int64(le.Uint32(b[4*i:])), t)
		case 16:
			dst[i] = Wrap(int64(le.Uint16(b[2*i:])), t)
		default:
			dst[i] = Wrap(int64(packedAt(b, i, bits)), t)
		}
		if t == onnx.Bool {
			dst[i] = min(dst[i], 1)
		}
	}
}

// EncodeInts returns the bytes of integers of a type.
func EncodeInts(v []int64, t onnx.DataType) []byte {
	b := make([]byte, (len(v)*t.Bits()+7)/8)
	for i, x := range v {
		switch t.Bits() {
		case 64:
			le.PutUint64(b[8*i:], uint64(x))
		case 32:
			le.PutUint32(b[4*i:], uint32(x))
		case 16:
			le.PutUint16(b[2*i:], uint16(x))
		default:
			putPacked(b, i, t.Bits(), byte(x))
		}
	}
	return b
}

// encodeFloat16 encodes a value that float16 can hold; see roundFloat16.
func encodeFloat16(x float64) uint16 {
	u := math.Float64bits(x)
	sign := uint16(u >> 48 & 0x8000)
	a := math.Abs(x)
	switch {
	case a != a:
		return sign | 0x7e00
	case a > 65504:
		return sign | 0x7c00
	case a < 0x1p-14:
		return sign | uint16(a*0x1p24)
	}
	exp := int(u>>52&0x7ff) - 1023
	return sign | uint16(exp+15)<<10 | uint16(u>>42&0x3ff)
}
