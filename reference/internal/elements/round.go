// Package elements rounds and wraps numbers to the types of tensors' elements, and reads and writes their bytes.
package elements

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// roundFloat16 rounds to the nearest IEEE 754 binary16 value, ties to even; 65520 and more become infinite.
func roundFloat16(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a >= 65520:
		return math.Copysign(math.Inf(1), x)
	case a < 0x1p-14: // subnormal: a fixed quantum
		return math.RoundToEven(x*0x1p24) * 0x1p-24
	case a != a:
		return x
	}
	return dropBits(x, 42)
}

// roundBFloat16 rounds to the nearest bfloat16 value (float32 with 7 bits of mantissa), ties to even.
func roundBFloat16(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-126:
		return math.RoundToEven(x*0x1p133) * 0x1p-133
	case a != a, a > math.MaxFloat64:
		return x
	}
	y := dropBits(x, 45)
	if math.Abs(y) >= 0x1p128 {
		return math.Copysign(math.Inf(1), x)
	}
	return y
}

// dropBits rounds away the low n bits of the mantissa, ties to even. A carry correctly increments the exponent.
func dropBits(x float64, n uint) float64 {
	u := math.Float64bits(x)
	u += 1<<(n-1) - 1 + u>>n&1
	return math.Float64frombits(u &^ (1<<n - 1))
}

// Round rounds one value to a floating-point type.
func Round(t onnx.DataType, x float64) float64 {
	switch t {
	case onnx.Float:
		return float64(float32(x))
	case onnx.Float16:
		return roundFloat16(x)
	case onnx.BFloat16:
		return roundBFloat16(x)
	case onnx.Double:
		return x
	}
	if f := FormatOf(t); f != nil {
		return f.Round(x, true)
	}
	return x
}

// RoundAll rounds in place.
func RoundAll(t onnx.DataType, v []float64) {
	switch t {
	case onnx.Double:
	case onnx.Float:
		for i, x := range v {
			v[i] = float64(float32(x))
		}
	case onnx.Float16:
		for i, x := range v {
			v[i] = roundFloat16(x)
		}
	case onnx.BFloat16:
		for i, x := range v {
			v[i] = roundBFloat16(x)
		}
	default:
		for i, x := range v {
			v[i] = Round(t, x)
		}
	}
}

// Wrap reduces x modulo the width of an integer type.
func Wrap(x int64, t onnx.DataType) int64 {
	shift := 64 - t.Bits()
	switch {
	case t == onnx.Bool:
		return x
	case unsigned(t):
		return int64(uint64(x) << shift >> shift)
	}
	return x << shift >> shift
}

// WrapAll wraps in place.
func WrapAll(t onnx.DataType, v []int64) {
	if t.Bits() == 64 || t == onnx.Bool {
		return
	}
	for i, x := range v {
		v[i] = Wrap(x, t)
	}
}

// unsigned reports whether t is an unsigned integer type.
func unsigned(t onnx.DataType) bool {
	switch t {
	case onnx.Uint2, onnx.Uint4, onnx.Uint8, onnx.Uint16, onnx.Uint32, onnx.Uint64:
		return true
	}
	return false
}

// Range returns the smallest and greatest value of an integer type; uint64 is limited to the positive int64.
func Range(t onnx.DataType) (lo, hi int64) {
	switch bits := t.Bits(); {
	case t == onnx.Bool:
		return 0, 1
	case t == onnx.Uint64:
		return 0, math.MaxInt64
	case unsigned(t):
		return 0, 1<<bits - 1
	default:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	}
}
