package blocks

import "math"

// BFloat16 returns the bits of the nearest bfloat16, ties to even; a NaN stays one.
func BFloat16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40 // rounding could turn it into an infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
