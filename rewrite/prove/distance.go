package prove

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// StructuralTolerance is allowed, as a part of the greatest magnitude, where nothing is rounded: exporters store
// constants such as sqrt(2/pi) in float32.
const StructuralTolerance = 1e-6

// ULPs are allowed where results are rounded, in units in the last place of the tensor's greatest magnitude. Elements
// near zero are sums of greater ones, so counting their own units would say nothing.
var ULPs = map[onnx.DataType]float64{onnx.Float: 16, onnx.Float16: 8, onnx.BFloat16: 8, onnx.Double: 16}

// fewTerms are added up within the ulps; the roundings of longer sums grow with them.
const fewTerms = 128

// AllowedULPs are the ulps of sums of so many terms.
func AllowedULPs(t onnx.DataType, terms int64) float64 {
	return ULPs[t] * max(1, float64(terms)/fewTerms)
}

// Distance returns the greatest difference where want is finite, and the greatest finite magnitude of want. A got that
// is not finite there is as far as can be.
func Distance(want, got []float64) (difference, scale float64) {
	if len(want) != len(got) {
		return math.MaxFloat64, 0
	}
	for i, w := range want {
		if !IsFinite(w) {
			continue
		}
		scale = max(scale, math.Abs(w))
		if d := math.Abs(w - got[i]); d > difference || !IsFinite(d) {
			difference = d
			if !IsFinite(d) {
				difference = math.MaxFloat64
			}
		}
	}
	return difference, scale
}

// Relative returns a difference as a part of the greatest magnitude.
func Relative(difference, scale float64) float64 {
	if difference == 0 {
		return 0
	}
	if scale == 0 {
		return math.MaxFloat64
	}
	// Numbers below the least normal one have no digits of their own to lose.
	return min(difference/max(scale, leastNormal(onnx.Float)), math.MaxFloat64)
}

// IsFinite reports whether x is neither infinite nor NaN.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// AllFinite reports whether all numbers are finite.
func AllFinite(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !IsFinite(x) })
}
