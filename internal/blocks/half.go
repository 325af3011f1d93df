package blocks

import (
	"fmt"
	"math"

	"github.com/x448/float16"
)

// BFloat16 returns the bits of the nearest bfloat16, ties to even; NaN stays NaN.
func BFloat16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40 // rounding could turn it into an infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// encodeBF16 rounds to the nearest bfloat16. It returns an error if a finite number would become infinite.
func encodeBF16(dst []byte, src []float32) error {
	h := BFloat16(src[0])
	if h&0x7fff == 0x7f80 && !math.IsInf(float64(src[0]), 0) {
		return fmt.Errorf("%g is beyond the range of bfloat16", src[0])
	}
	le.PutUint16(dst, h)
	return nil
}

// encodeF16 rounds to the nearest float16. It returns an error if a finite number would become infinite.
func encodeF16(dst []byte, src []float32) error {
	h := float16.Fromfloat32(src[0])
	if h.IsInf(0) && !math.IsInf(float64(src[0]), 0) {
		return fmt.Errorf("%g is beyond the range of float16", src[0])
	}
	le.PutUint16(dst, h.Bits())
	return nil
}
