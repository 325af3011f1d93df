package reference

import (
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var le = binary.LittleEndian

func decodeFloats(dst []float64, b []byte, t onnx.DataType) {
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
			dst[i] = decodeFloat16(le.Uint16(b[2*i:]))
		}
	case onnx.BFloat16:
		for i := range dst {
			dst[i] = float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
		}
	default:
		f := miniFormat(t)
		bits := t.Bits()
		for i := range dst {
			dst[i] = f.decode(packedAt(b, i, bits))
		}
	}
}

func encodeFloats(v []float64, t onnx.DataType) []byte {
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
		f := miniFormat(t)
		bits := t.Bits()
		for i, x := range v {
			putPacked(b, i, bits, f.encode(f.round(x, true)))
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

func decodeInts(dst []int64, b []byte, t onnx.DataType) {
	switch t {
	case onnx.Int64, onnx.Uint64:
		for i := range dst {
			dst[i] = int64(le.Uint64(b[8*i:]))
		}
	case onnx.Int32:
		for i := range dst {
			dst[i] = int64(int32(le.Uint32(b[4*i:])))
		}
	case onnx.Uint32:
		for i := range dst {
			dst[i] = int64(le.Uint32(b[4*i:]))
		}
	case onnx.Int16:
		for i := range dst {
			dst[i] = int64(int16(le.Uint16(b[2*i:])))
		}
	case onnx.Uint16:
		for i := range dst {
			dst[i] = int64(le.Uint16(b[2*i:]))
		}
	case onnx.Bool:
		for i := range dst {
			if b[i] != 0 {
				dst[i] = 1
			}
		}
	default:
		bits := t.Bits()
		for i := range dst {
			dst[i] = wrapInt(int64(packedAt(b, i, bits)), t)
		}
	}
}

func encodeInts(v []int64, t onnx.DataType) []byte {
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

func decodeFloat16(h uint16) float64 {
	exp, man := int(h>>10&0x1f), float64(h&0x3ff)
	v := 0.0
	switch exp {
	case 0:
		v = math.Ldexp(man, -24)
	case 0x1f:
		v = math.Inf(1)
		if man != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(man+1024, exp-25)
	}
	if h&0x8000 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

// encodeFloat16 takes a value that float16 can hold; see roundFloat16.
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
