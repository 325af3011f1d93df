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
	case onnx.Float8E4M3FN:
		values := blocks.Values(t)
		return func(i int64) float64 { return float64(values[b[i]]) }, nil
	}
	return nil, fmt.Errorf("tensors of %s cannot be compared", t)
}

// ulp returns the spacing of numbers of type t around x: one unit in the last place. It is 0 for integers.
func ulp(t onnx.DataType, x float64) float64 {
	var digits, least int // bits after the binary point, exponent of the least subnormal
	switch t {
	case onnx.Float8E4M3FN:
		digits, least = 3, -9
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

// Float64s returns the elements of a tensor of floats or integers of any width.
func Float64s(t *onnx.Tensor) ([]float64, error) {
	read, _, err := elementReader(t)
	if err != nil {
		return nil, err
	}
	list := make([]float64, t.Len())
	for i := range list {
		list[i] = read(int64(i))
	}
	return list, nil
}

// Int64s returns the elements of a tensor of integers of any width; those beyond 2^53 are rounded.
func Int64s(t *onnx.Tensor) ([]int64, error) {
	if !t.DataType.IsInteger() {
		return nil, &MismatchError{t.Name, t.DataType, onnx.Int64, t.Dims, t.Dims}
	}
	floats, err := Float64s(t)
	list := make([]int64, len(floats))
	for i, x := range floats {
		list[i] = int64(x)
	}
	return list, err
}

// Convert returns the tensor with elements of another float type, rounded to nearest, ties to even (from float64
// through float32). Both types must be float16, bfloat16, float32 or float64; otherwise it returns an error. Compare
// accepts tensors of different float types directly.
func Convert(t *onnx.Tensor, to onnx.DataType) (*onnx.Tensor, error) {
	if t.DataType == to {
		return t, nil
	}
	if !t.DataType.IsFloat() || !to.IsFloat() {
		return nil, fmt.Errorf("tensor %q: cannot convert %s to %s: only float types can be "+
			"converted", t.Name, t.DataType, to)
	}
	read, _, err := elementReader(t)
	if err != nil {
		return nil, err
	}
	n := t.Len()
	out := make([]byte, n*int64(to.Bits()/8))
	for i := range n {
		PutFloat(to, out, int(i), read(i))
	}
	return onnx.NewTensor(t.Name, to, t.Dims, out)
}
