package prove

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// StructuralTolerance is the difference allowed without rounding, relative to the largest magnitude: exporters store
// constants such as sqrt(2/pi) in float32.
const StructuralTolerance = 1e-6

// ULPs are the differences allowed for rounded results, in units in the last place of the tensor's largest magnitude.
// Elements near zero are sums of larger ones, so their own units would prove nothing.
var ULPs = map[onnx.DataType]float64{onnx.Float: 16, onnx.Float16: 8, onnx.BFloat16: 8, onnx.Double: 16}

// fewTerms is the length of sums within the ulps. The rounding errors of longer sums grow with their length.
const fewTerms = 128

// AllowedULPs returns the ulps for sums with this many terms.
func AllowedULPs(t onnx.DataType, terms int64) float64 {
	return ULPs[t] * max(1, float64(terms)/fewTerms)
}

// Distance returns the largest difference where want is finite, and the largest finite magnitude of want. If got is not
// finite there, the difference is maximal.
func Distance(want, got []float64) (difference, scale float64) {
	if len(want) != len(got) {
		return math.MaxFloat64, 0
	}
	for i, w := range want { // all elements of all trials: without calls and with few branches
		if w-w != 0 { // infinite or NaN
			continue
		}
		if a := math.Abs(w); a > scale {
			scale = a
		}
		if d := math.Abs(w - got[i]); d > difference {
			difference = d
		} else if d != d {
			difference = math.Inf(1)
		}
	}
	return min(difference, math.MaxFloat64), scale
}

// Relative returns a difference relative to the largest magnitude.
func Relative(difference, scale float64) float64 {
	if difference == 0 {
		return 0
	}
	if scale == 0 {
		return math.MaxFloat64
	}
	// Numbers below the smallest normal one have no further digits to lose.
	return min(difference/max(scale, leastNormal(onnx.Float)), math.MaxFloat64)
}

// IsFinite reports whether x is neither infinite nor NaN.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// AllFinite reports whether all numbers are finite.
func AllFinite(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !IsFinite(x) })
}
