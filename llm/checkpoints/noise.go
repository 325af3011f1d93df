package checkpoints

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
)

// Random weights of any size come from little memory: a stream consists of windows of one table of elements, each from
// another offset. The same name returns the same elements.
const (
	noiseTable  = 1 << 17 // elements
	noiseWindow = 1 << 16
)

// stream returns a function that writes n elements of width bytes. element makes one element of the table.
func stream(name string, n int64, width int, element func(r *rand.Rand, b []byte)) func(w io.Writer) error {
	return func(w io.Writer) error {
		h := fnv.New64a()
		io.WriteString(h, name)
		r := rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
		table := make([]byte, noiseTable*width)
		for i := range noiseTable {
			element(r, table[i*width:][:width])
		}
		for left := n; left > 0; {
			count := min(left, noiseWindow)
			if _, err := w.Write(table[r.IntN(noiseTable-noiseWindow)*width:][:int(count)*width]); err != nil {
				return err
			}
			left -= count
		}
		return nil
	}
}

// random returns a tensor of elements of width bytes.
func random(name, dtype string, width int, dims []int64, element func(r *rand.Rand, b []byte)) Tensor {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return Tensor{Name: name, Dims: dims, DType: dtype, Size: n * int64(width),
		Write: stream(name, n, width, element)}
}

// bfloat16 has normally distributed elements around a mean.
func bfloat16(name string, mean, deviation float64, dims ...int64) Tensor {
	return random(name, "BF16", 2, dims, func(r *rand.Rand, b []byte) {
		x := math.Float32bits(float32(mean + deviation*r.NormFloat64()))
		binary.LittleEndian.PutUint16(b, uint16(x>>16))
	})
}

// fp8 is a float8e4m3fn matrix with one scale per 128 x 128 elements, as DeepSeek stores it.
func fp8(name string, n, k int64) []Tensor {
	const typical = 112 // root mean square of elements with uniform codes
	scale := 1 / math.Sqrt(float64(k)) / typical
	return []Tensor{
		random(name, "F8_E4M3", 1, []int64{n, k}, func(r *rand.Rand, b []byte) {
			if b[0] = byte(r.Uint32()); b[0]&0x7f == 0x7f { // NaN
				b[0]--
			}
		}),
		random(name+"_scale_inv", "F32", 4, []int64{(n + 127) / 128, (k + 127) / 128}, func(r *rand.Rand, b []byte) {
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(scale*(0.5+r.Float64()))))
		})}
}

// mxfp4 is matrices [count, n, k] in blocks of 32 4-bit elements with a power of two, as gpt-oss stores them.
func mxfp4(name string, count, n, k int64) []Tensor {
	exponent := 127 - math.Round(math.Log2(math.Sqrt(float64(k))*3))
	return []Tensor{
		random(name+"_blocks", "U8", 1, []int64{count, n, k / 32, 16}, func(r *rand.Rand, b []byte) {
			b[0] = byte(r.Uint32())
		}),
		random(name+"_scales", "U8", 1, []int64{count, n, k / 32}, func(r *rand.Rand, b []byte) {
			b[0] = byte(exponent) + byte(r.IntN(2))
		})}
}

// ggml's type numbers.
const (
	ggmlF32  = 0
	ggmlQ4_0 = 2
)

// q40 is matrices in blocks of 32 4-bit elements, as ggml stores Q4_0.
func q40(name string, dims ...int64) Tensor {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	const typical = 4.6 // the root mean square of a code minus 8
	scale := 1 / math.Sqrt(float64(dims[len(dims)-1])) / typical
	return Tensor{Name: name, Dims: dims, Type: ggmlQ4_0, Size: n / 32 * 18,
		Write: stream(name, n/32, 18, func(r *rand.Rand, b []byte) {
			binary.LittleEndian.PutUint16(b, half(scale*(0.75+r.Float64()/2)))
			for i := 2; i < len(b); i++ {
				b[i] = byte(r.Uint32())
			}
		})}
}

// half returns a float16 near x, which must be normal.
func half(x float64) uint16 {
	bits := math.Float32bits(float32(x))
	return uint16(bits>>16&0x8000 | (bits>>13&0x3ffff-112<<10)&0x7fff)
}

// float32s has normally distributed elements around a mean.
func float32s(name string, mean, deviation float64, dims ...int64) Tensor {
	t := random(name, "F32", 4, dims, func(r *rand.Rand, b []byte) {
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(mean+deviation*r.NormFloat64())))
	})
	t.Type = ggmlF32
	return t
}
