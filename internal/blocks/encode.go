package blocks

import (
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Encoding rounds each block of elements to the nearest codes of the block's scale, bit by bit as ggml's
// quantize_row_*_ref and gguf-py's quantize do: every step is in float32, and products are rounded before additions.
// The conversions below prevent compilers from fusing the two.

// rounding sets the encoder of one block. An encoder returns an error if a block's scale does not fit into float16.
func (f *Format) rounding(encode func(dst []byte, src []float32) error) *Format {
	f.encode = encode
	return f
}

// sharing sets the number of rows whose blocks share a scale, and the function that stores this scale for their
// greatest magnitude.
func (f *Format) sharing(rows int, scale func(dst []byte, most float32)) *Format {
	f.SharedRows, f.share = rows, scale
	return f
}

// Share writes the scales that rows of cols elements share into dst, a row as the format stores it. Call it before
// Encode if SharedRows is not 0. It returns an error for elements that are not finite.
func (f *Format) Share(dst []byte, rows []float32, cols int64) error {
	for b := int64(0); b < cols; b += int64(f.Elements) {
		most := float32(0)
		for at := b; at < int64(len(rows)); at += cols {
			for j, x := range rows[at : at+int64(f.Elements)] {
				if x-x != 0 {
					return fmt.Errorf("row %d: element %d is %v, which has no code", at/cols, b+int64(j), x)
				}
				most = max(most, float32(math.Abs(float64(x))))
			}
		}
		f.share(dst[b/int64(f.Elements)*int64(f.Size):], most)
	}
	return nil
}

// Rounds reports whether Encode can be called.
func (f *Format) Rounds() bool { return f.encode != nil }

// Encode sets dst to the elements of src, which are whole blocks, rounded to the nearest. It returns an error for
// elements that are not finite, and for a block too large for the format.
func (f *Format) Encode(dst []byte, src []float32) error {
	for i := 0; i < len(src); i += f.Elements {
		block := src[i : i+f.Elements]
		for j, x := range block {
			if x-x != 0 {
				return fmt.Errorf("element %d is %v, which has no code", i+j, x)
			}
		}
		if err := f.encode(dst[:f.Size], block); err != nil {
			return fmt.Errorf("elements %d to %d: %w", i, i+f.Elements-1, err)
		}
		dst = dst[f.Size:]
	}
	return nil
}

// putHalf writes a scale or a minimum.
func putHalf(dst []byte, x float32) error {
	h := float16.Fromfloat32(x)
	if h.IsInf(0) {
		return fmt.Errorf("a scale or minimum of %g is beyond the range of float16", x)
	}
	le.PutUint16(dst, h.Bits())
	return nil
}

// inverse returns 1/d, or 0 if that is not finite: such a d is 0 as a float16.
func inverse(d float32) float32 {
	if i := 1 / d; i-i == 0 {
		return i
	}
	return 0
}

// greatest returns the first element of the greatest magnitude.
func greatest(src []float32) (x, magnitude float32) {
	x = src[0]
	for _, v := range src {
		if a := float32(math.Abs(float64(v))); a > magnitude {
			x, magnitude = v, a
		}
	}
	return x, magnitude
}

// putNibbles writes 32 codes of 4 bits, rounded down.
func putNibbles(dst []byte, code func(i int) float32) {
	for i := range 16 {
		low, high := min(uint8(code(i)), 15), min(uint8(code(i+16)), 15)
		dst[i] = low | high<<4
	}
}

// encodeQ4_0 maps the element of the greatest magnitude to code 0, whatever its sign.
func encodeQ4_0(dst []byte, src []float32) error {
	x, _ := greatest(src)
	d := x / -8
	id := inverse(d)
	putNibbles(dst[2:], func(i int) float32 { return float32(src[i]*id) + 8.5 })
	return putHalf(dst, d)
}

// encodeQ4_1 maps the least element to code 0 and the greatest to 15.
func encodeQ4_1(dst []byte, src []float32) error {
	least, most := src[0], src[0]
	for _, x := range src {
		least, most = min(least, x), max(most, x)
	}
	d := (most - least) / 15
	if err := putHalf(dst, d); err != nil {
		return err
	}
	id := inverse(d)
	putNibbles(dst[4:], func(i int) float32 { return float32((src[i]-least)*id) + 0.5 })
	return putHalf(dst[2:], least)
}

// encodeQ8_0 rounds halves away from zero.
func encodeQ8_0(dst []byte, src []float32) error {
	_, most := greatest(src)
	d := most / 127
	id := inverse(d)
	for i, x := range src {
		dst[2+i] = byte(int8(math.Round(float64(float32(x * id)))))
	}
	return putHalf(dst, d)
}

// middlesE2M1 are halfway between doubled e2m1 elements; a tie goes to the lesser magnitude.
var middlesE2M1 = [...]float32{0.5, 1.5, 2.5, 3.5, 5, 7, 10}

// encodeMXFP4 chooses the scale by which the greatest element gets the exponent of 4, as in the OCP's specification:
// elements above 6 become 6.
func encodeMXFP4(dst []byte, src []float32) error {
	_, most := greatest(src)
	exponent := 0.0
	if most > 0 { // the logarithm rounded as in float32
		exponent = min(max(math.Floor(float64(float32(math.Log2(float64(most)))))-2+127, 0), 254)
	}
	dst[0] = byte(exponent)
	double := math.Ldexp(1, 128-int(dst[0]))
	code := func(x float32) (c byte) {
		a := math.Abs(float64(x)) * double
		for _, m := range middlesE2M1 {
			if a > float64(m) {
				c++
			}
		}
		if c > 0 && x < 0 {
			c |= 8
		}
		return c
	}
	for i := range 16 {
		dst[1+i] = code(src[i]) | code(src[i+16])<<4
	}
	return nil
}

// greatestE4M3 is the greatest finite float8e4m3fn.
const greatestE4M3 = 448

// shareFP8Block maps the greatest magnitude of 128 x 128 elements to the greatest number, as DeepSeek's checkpoints do.
func shareFP8Block(dst []byte, most float32) { le.PutUint32(dst, math.Float32bits(most/greatestE4M3)) }

// encodeFP8Block divides by the stored scale and rounds to the nearest, ties to even.
func encodeFP8Block(dst []byte, src []float32) error {
	d := math.Float32frombits(le.Uint32(dst))
	for i, x := range src {
		dst[4+i] = 0
		if d > 0 {
			dst[4+i] = e4m3(x / d)
		}
	}
	return nil
}

// e4m3 returns the nearest float8e4m3fn.
func e4m3(x float32) byte {
	sign := byte(math.Float32bits(x) >> 24 & 0x80)
	a := float32(math.Abs(float64(x)))
	if a < 0x1p-6 { // multiples of 2^-9
		return sign | byte(math.RoundToEven(float64(a)*0x1p9))
	}
	bits := math.Float32bits(min(a, greatestE4M3))
	bits += 0x7ffff + bits>>20&1
	return sign | byte(min(bits>>20-(127-7)<<3, 0x7e))
}
