package op

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// perturbs reports whether a result of type t is computed with different roundings.
func (c *Call) perturbs(t onnx.DataType) bool {
	return c.Perturb != 0 && !c.Exact && lastPlace(t) != nil
}

// Gemm returns the multiplication for matrices of type t.
func (c *Call) Gemm(t onnx.DataType) tensor.GemmFunc {
	if t == onnx.Double || !c.perturbs(t) {
		return tensor.Gemm64
	}
	seed := c.Perturb
	return func(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
		ldc int) {
		gemm32(stepOf(seed, k), ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc)
	}
}

// stepOf returns the distance between successive terms of a sum of k in the order of a seed: 1 for forward order, -1,
// or a step that interleaves them.
func stepOf(seed uint64, k int) int {
	switch seed % 3 {
	case 1:
		return 1
	case 2:
		return k - 1
	}
	step := max(k*5/8, 1)
	for gcd(step, k) != 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// gemm32 sums in float32, one term after the other.
func gemm32(step int, ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int) {
	row := make([]float32, n)
	for i := range m {
		for j := range row {
			row[j] = float32(beta * c[i*ldc+j])
		}
		p := 0
		for range k {
			x := a[i*lda+p]
			if ta {
				x = a[p*lda+i]
			}
			if tb {
				for j := range row {
					row[j] += float32(x * b[j*ldb+p])
				}
			} else {
				for j, y := range b[p*ldb : p*ldb+n] {
					row[j] += float32(x * y)
				}
			}
			if p += step; p >= k {
				p -= k
			}
		}
		for j, x := range row {
			c[i*ldc+j] = float64(x)
		}
	}
}

// Adder returns the addition for sums of type t; add combines the sum so far and a term.
func (c *Call) Adder(t onnx.DataType, add func(a, x float64) float64) func(a, x float64) float64 {
	if t == onnx.Double || !c.perturbs(t) {
		return add
	}
	return func(a, x float64) float64 { return float64(float32(add(a, x))) }
}

// roundedAlike are the ops whose results every implementation rounds in the same way, if at all: once, to nearest.
var roundedAlike = onnx.Words(`
	Abs Add Ceil Clip Div Floor Gemm MatMul Max Min Mod Mul Neg ReduceMax ReduceMin ReduceSum Relu Round Sign Sub
	Sum
`)

// roundPerturbed rounds in place and moves values that were rounded, or are never exact, by a unit in the last place,
// up or down. Exact values stay, so integers do. So do zeros, which are exact or come from moved numbers.
func (c *Call) roundPerturbed(t onnx.DataType, v []float64) {
	place, seed := lastPlace(t), scramble(c.Perturb+uint64(c.Frame.Meter.steps)<<32)
	alike := roundedAlike[c.Node.OpType]
	for i, exact := range v {
		elements.RoundAll(t, v[i:i+1])
		x := v[i]
		if x == exact && alike || x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			continue
		}
		if scramble(seed+uint64(i))&1 == 0 {
			v[i] = x + place(x)
		} else {
			v[i] = x - place(x)
		}
		elements.RoundAll(t, v[i:i+1]) // at a power of two the unit below is half of the one above
	}
}

// lastPlace returns the function from a number of type t to the unit in its last place, or nil.
func lastPlace(t onnx.DataType) func(float64) float64 {
	var bits, least int
	switch t {
	case onnx.Float16:
		bits, least = 11, -14
	case onnx.BFloat16:
		bits, least = 8, -126
	case onnx.Float:
		bits, least = 24, -126
	case onnx.Double:
		bits, least = 53, -1022
	default:
		return nil
	}
	return func(x float64) float64 { return math.Ldexp(1, max(math.Ilogb(x), least)-bits+1) }
}

// scramble maps each number to one whose bits look random (the finalizer of SplitMix64).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
