// Package blocks decodes stored weights in little-endian order to float32: elements of an ONNX type, or ggml's blocks
// of quantized elements, which it can also encode.
package blocks

import "github.com/mojo-patch/mojo-patch/onnx"

// Format is a storage format: a block of Elements elements takes Size bytes.
type Format struct {
	Elements, Size int
	decode         Reader                                // of whole blocks; nil if elements cannot be decoded
	encode         func(dst []byte, src []float32) error // of one block; nil without an encoder
	// SharedRows is the number of rows whose blocks share a scale, which Share stores for Encode; 0 if each block has
	// its own.
	SharedRows int
	share      func(dst []byte, most float32)
	panels     *Panels
}

// The ggml formats whose elements can be decoded. A Format for other types only has the size of a block.
var (
	Q4_0  = quantized(32, 18, decodeQ4_0, panelsQ4_0).rounding(encodeQ4_0)
	Q4_1  = quantized(32, 20, decodeQ4_1, panelsQ4_1).rounding(encodeQ4_1)
	Q5_0  = quantized(32, 22, decodeQ5_0, panelsQ5_0)
	Q5_1  = quantized(32, 24, decodeQ5_1, panelsQ5_1)
	Q8_0  = quantized(32, 34, decodeQ8_0, panelsQ8_0).rounding(encodeQ8_0)
	Q4_K  = quantized(256, 144, decodeQ4_K, panelsQ4_K)
	Q5_K  = quantized(256, 176, decodeQ5_K, panelsQ5_K)
	Q6_K  = quantized(256, 210, decodeQ6_K, panelsQ6_K)
	MXFP4 = quantized(32, 17, decodeMXFP4, panelsMXFP4).rounding(encodeMXFP4)
)

// Formats of safetensors files, whose scales are separate tensors: a block here is a scale followed by its codes.
var (
	// FP8Block is DeepSeek-V3's: a float32 and 128 elements of float8e4m3fn. 128 rows share their scales.
	FP8Block = quantized(128, 132, decodeFP8Block, panelsFP8Block).rounding(encodeFP8Block).sharing(128, shareFP8Block)
	// MXFP4Pairs is gpt-oss's: an exponent and 32 elements of float4e2m1, adjacent ones in a byte.
	MXFP4Pairs = quantized(32, 17, decodeMXFP4Pairs, panelsMXFP4Pairs)
)

// The 16-bit formats, whose elements are stored one by one.
var (
	F16  = Of(onnx.Float16).rounding(encodeF16)
	BF16 = Of(onnx.BFloat16).rounding(encodeBF16)
)

// Half returns the format of float16 or bfloat16.
func Half(t onnx.DataType) *Format {
	if t == onnx.BFloat16 {
		return BF16
	}
	return F16
}

// quantized returns the format whose blocks decode decodes one at a time, with its panel layout.
func quantized(elements, size int, decode func(dst []float32, src []byte), panels Panels) *Format {
	f := &Format{Elements: elements, Size: size, panels: &panels}
	f.panels.format = f
	f.decode = func(dst []float32, src []byte) {
		for ; len(dst) > 0; dst, src = dst[elements:], src[size:] {
			decode(dst[:elements], src[:size])
		}
	}
	return f
}

// Of returns the format of elements stored one by one or, for types of less than 8 bits, as many as fill bytes. Types
// without a Reader cannot be decoded.
func Of(t onnx.DataType) *Format {
	f := &Format{Elements: 1, Size: t.Bits() / 8, decode: ReaderOf(t)}
	for bits := t.Bits(); bits > 0 && bits*f.Elements%8 != 0; {
		f.Elements++
		f.Size = bits * f.Elements / 8
	}
	return f
}

// Readable reports whether Decode can be called.
func (f *Format) Readable() bool { return f.decode != nil }

// Decode sets dst to the elements of src from element first on. The format must be readable, and src must contain them.
func (f *Format) Decode(dst []float32, src []byte, first int64) {
	src = src[first/int64(f.Elements)*int64(f.Size):]
	var block [256]float32
	if skip := int(first % int64(f.Elements)); skip > 0 {
		f.decode(block[:f.Elements], src)
		dst, src = dst[copy(dst, block[skip:f.Elements]):], src[f.Size:]
	}
	whole := len(dst) / f.Elements
	f.decode(dst[:whole*f.Elements], src)
	if dst = dst[whole*f.Elements:]; len(dst) > 0 {
		f.decode(block[:f.Elements], src[whole*f.Size:])
		copy(dst, block[:])
	}
}
