package blocks

import (
	"encoding/binary"
	"math"
)

// The types with blocks of 32 elements: a scale d, in some a minimum m, both float16, then the quantized elements. The
// first 16 are the low nibbles of the bytes, the last 16 the high ones; fifth bits are in a separate word.
//
// Every product is exact: of the 24 bits of a float32, a scale takes 11 and the integers at most 12. So only the sum
// rounds, whether or not a compiler fuses the two.

func float16At(b []byte) float32 { return Float16(binary.LittleEndian.Uint16(b)) }

// decodeQ4_0 computes d * (q - 8).
func decodeQ4_0(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[18]byte)(src)
	d := float16At(b[:])
	for i, q := range b[2:] {
		out[i] = d * float32(int(q&15)-8)
		out[i+16] = d * float32(int(q>>4)-8)
	}
}

// decodeQ4_1 computes d * q + m.
func decodeQ4_1(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[20]byte)(src)
	d, m := float16At(b[:]), float16At(b[2:])
	for i, q := range b[4:] {
		out[i] = d*float32(q&15) + m
		out[i+16] = d*float32(q>>4) + m
	}
}

// decodeQ5_0 computes d * (q - 16).
func decodeQ5_0(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[22]byte)(src)
	d, high := float16At(b[:]), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:] {
		out[i] = d * float32(int(q&15)|int(high>>i&1)<<4-16)
		out[i+16] = d * float32(int(q>>4)|int(high>>(i+16)&1)<<4-16)
	}
}

// decodeQ5_1 computes d * q + m.
func decodeQ5_1(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[24]byte)(src)
	d, m, high := float16At(b[:]), float16At(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:] {
		out[i] = d*float32(int(q&15)|int(high>>i&1)<<4) + m
		out[i+16] = d*float32(int(q>>4)|int(high>>(i+16)&1)<<4) + m
	}
}

// decodeQ8_0 computes q * d.
func decodeQ8_0(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[34]byte)(src)
	d := float16At(b[:])
	for i, q := range b[2:] {
		out[i] = float32(int8(q)) * d
	}
}

// doubledE2M1 are the values of e2m1 times two, without -0.
var doubledE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 computes 2^(e-128) * q, with q twice an element of e2m1; e = 255 is not NaN here.
func decodeMXFP4(dst []float32, src []byte) {
	out, b := (*[32]float32)(dst), (*[17]byte)(src)
	half := float32(math.Ldexp(1, int(b[0])-128))
	for i, q := range b[1:] {
		out[i] = half * doubledE2M1[q&15]
		out[i+16] = half * doubledE2M1[q>>4]
	}
}
