package golden

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

// reader returns element i of a tensor as float64. It rounds 64-bit integers beyond 2^53, so use it for errors, not for
// equality.
type reader func(i int64) float64

func newReader(t onnx.DataType, b []byte) (reader, error) {
	le := binary.LittleEndian
	switch t {
	case onnx.Float:
		return func(i int64) float64 { return float64(math.Float32frombits(le.Uint32(b[4*i:]))) }, nil
	case onnx.Double:
		return func(i int64) float64 { return math.Float64frombits(le.Uint64(b[8*i:])) }, nil
	case onnx.Float16:
		return func(i int64) float64 { return float64(float16.Frombits(le.Uint16(b[2*i:])).Float32()) }, nil
	case onnx.BFloat16:
		return func(i int64) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)) }, nil
	case onnx.Int64:
		return func(i int64) float64 { return float64(int64(le.Uint64(b[8*i:]))) }, nil
	case onnx.Uint64:
		return func(i int64) float64 { return float64(le.Uint64(b[8*i:])) }, nil
	case onnx.Int32:
		return func(i int64) float64 { return float64(int32(le.Uint32(b[4*i:]))) }, nil
	case onnx.Uint32:
		return func(i int64) float64 { return float64(le.Uint32(b[4*i:])) }, nil
	case onnx.Int16:
		return func(i int64) float64 { return float64(int16(le.Uint16(b[2*i:]))) }, nil
	case onnx.Uint16:
		return func(i int64) float64 { return float64(le.Uint16(b[2*i:])) }, nil
	case onnx.Int8:
		return func(i int64) float64 { return float64(int8(b[i])) }, nil
	case onnx.Uint8, onnx.Bool:
		return func(i int64) float64 { return float64(b[i]) }, nil
	}
	return nil, fmt.Errorf("tensors of %s cannot be compared", t)
}

// ulp returns the spacing of numbers of type t around x: one unit in the last place. It is 0 for integers.
func ulp(t onnx.DataType, x float64) float64 {
	var digits, least int // bits after the binary point, exponent of the least subnormal
	switch t {
	case onnx.Float16:
		digits, least = 10, -24
	case onnx.BFloat16:
		digits, least = 7, -133
	case onnx.Float:
		digits, least = 23, -149
	case onnx.Double:
		digits, least = 52, -1074
	default:
		return 0
	}
	_, exponent := math.Frexp(x) // x = f * 2^exponent with f in [0.5, 1)
	if x == 0 {
		return math.Ldexp(1, least)
	}
	return math.Ldexp(1, max(exponent-1-digits, least))
}

// PutFloat writes f, rounded to the type, as element i of b, whose elements have that type.
func PutFloat(t onnx.DataType, b []byte, i int, f float64) {
	le := binary.LittleEndian
	switch t {
	case onnx.Float:
		le.PutUint32(b[4*i:], math.Float32bits(float32(f)))
	case onnx.Double:
		le.PutUint64(b[8*i:], math.Float64bits(f))
	case onnx.Float16:
		le.PutUint16(b[2*i:], float16.Fromfloat32(float32(f)).Bits())
	case onnx.BFloat16:
		le.PutUint16(b[2*i:], blocks.BFloat16(float32(f)))
	}
}

// putInt writes v as element i of b, whose elements have the given number of bytes.
func putInt(width int, b []byte, i int, v int64) {
	for k := range width {
		b[width*i+k] = byte(v >> (8 * k))
	}
}
