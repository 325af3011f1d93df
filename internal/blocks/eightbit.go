package blocks

import (
	"math"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Values returns the values of all bytes as elements of a type, or nil for types with larger elements.
func Values(t onnx.DataType) *[256]float32 {
	if values := byteValues[t]; values != nil {
		return values()
	}
	return nil
}

// The formats are defined on the page "Float stored in 8 bits" of the ONNX documentation: E4M3FN and E5M2 of "FP8
// Formats for Deep Learning" (arXiv:2209.05433), the FNUZ types of "8-bit Numerical Formats for Deep Neural Networks"
// (arXiv:2206.02915), and the scale E8M0 of the OCP Microscaling Formats 1.0.
var byteValues = map[onnx.DataType]func() *[256]float32{
	onnx.Uint8: table(func(b byte) float64 { return float64(b) }),
	onnx.Int8:  table(func(b byte) float64 { return float64(int8(b)) }),
	onnx.Bool:  table(func(b byte) float64 { return float64(min(b, 1)) }),
	onnx.Float8E4M3FN: table(func(b byte) float64 {
		if b&0x7f == 0x7f {
			return math.NaN()
		}
		return minifloat(b, 3, 7)
	}),
	onnx.Float8E4M3FNUZ: table(unsignedZero(3, 8)),
	onnx.Float8E5M2: table(func(b byte) float64 {
		switch {
		case b&0x7f == 0x7c:
			return math.Inf(1 - 2*int(b>>7))
		case b&0x7f > 0x7c:
			return math.NaN()
		}
		return minifloat(b, 2, 15)
	}),
	onnx.Float8E5M2FNUZ: table(unsignedZero(2, 16)),
	onnx.Float8E8M0: table(func(b byte) float64 {
		if b == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(b)-127)
	}),
	onnx.Float4E2M1: table(func(b byte) float64 { return minifloat(b<<4, 5, 1) }), // the low four bits
}

// unsignedZero returns a format in which the code of -0 is the only NaN.
func unsignedZero(mantissaBits, bias int) func(byte) float64 {
	return func(b byte) float64 {
		if b == 0x80 {
			return math.NaN()
		}
		return minifloat(b, mantissaBits, bias)
	}
}

func table(value func(byte) float64) func() *[256]float32 {
	return sync.OnceValue(func() *[256]float32 {
		var values [256]float32
		for i := range values {
			values[i] = float32(value(byte(i)))
		}
		return &values
	})
}

// minifloat returns the value of a finite float of 8 bits: a sign, a biased exponent, and the mantissa.
func minifloat(b byte, mantissaBits, bias int) float64 {
	exponent, mantissa := int(b&0x7f)>>mantissaBits, float64(int(b)&(1<<mantissaBits-1))
	v := math.Ldexp(mantissa, 1-bias-mantissaBits)
	if exponent > 0 {
		v = math.Ldexp(mantissa+float64(int(1)<<mantissaBits), exponent-bias-mantissaBits)
	}
	return math.Copysign(v, float64(int8(b))+0.5)
}
