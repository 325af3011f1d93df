package reference

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// perturbs reports whether a result of type t is computed with other roundings than the usual ones.
func (c *call) perturbs(t onnx.DataType) bool {
	return c.e.options.Perturb != 0 && !c.exact() && lastPlace(t) != nil
}

// gemm returns the multiplication for matrices of type t.
func (c *call) gemm(t onnx.DataType) gemmFunc {
	if t != onnx.Double && c.perturbs(t) {
		return gemm32
	}
	return gemm64
}

// gemm32 adds up in float32, one term after the other.
func gemm32(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int) {
	row := make([]float32, n)
	for i := range m {
		for j := range row {
			row[j] = float32(beta * c[i*ldc+j])
		}
		for p := range k {
			x := a[i*lda+p]
			if ta {
				x = a[p*lda+i]
			}
			for j := range row {
				y := b[p*ldb+j]
				if tb {
					y = b[j*ldb+p]
				}
				row[j] += float32(x * y)
			}
		}
		for j, x := range row {
			c[i*ldc+j] = float64(x)
		}
	}
}

// adder returns the addition for sums of type t, which add makes of the sum so far and a term.
func (c *call) adder(t onnx.DataType, add func(a, x float64) float64) func(a, x float64) float64 {
	if t == onnx.Double || !c.perturbs(t) {
		return add
	}
	return func(a, x float64) float64 { return float64(float32(add(a, x))) }
}

// perturb moves each finite number by a unit in its last place, up or down. Zeros stay: they are exact, or come from
// numbers that were moved.
func (c *call) perturb(t onnx.DataType, v []float64) {
	if !c.perturbs(t) {
		return
	}
	place, seed := lastPlace(t), scramble(c.e.options.Perturb+uint64(c.frame.meter.steps)<<32)
	for i, x := range v {
		if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			continue
		}
		if scramble(seed+uint64(i))&1 == 0 {
			v[i] = x + place(x)
		} else {
			v[i] = x - place(x)
		}
		roundAll(t, v[i:i+1]) // at a power of two the unit below is half of the one above
	}
}

// lastPlace returns the function from a number of type t to the unit in its last place; nil if there is none.
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

// scramble makes of each number one whose bits look random (the finalizer of SplitMix64).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
