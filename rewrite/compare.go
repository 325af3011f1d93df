package rewrite

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// structuralTolerance is allowed, as a part of the greatest magnitude, where nothing is rounded: exporters store
// constants such as sqrt(2/pi) in float32.
const structuralTolerance = 1e-6

// structuralBound is structuralTolerance, or what a constant of a half type may be off from the number that was meant,
// carried through a few operations: 0.044715 is 0.04473 in float16. Short numbers such as 0.5 or 3 are exact.
func (s *slice) structuralBound() float64 {
	bound := structuralTolerance
	numbers := slices.Clone(s.numbers)
	for _, v := range s.consts {
		if c := v.Constant(); c.Len() == 1 {
			if t, err := reference.FromONNX(c); err == nil {
				numbers = append(numbers, t)
			}
		}
	}
	for _, t := range numbers {
		if len(t.F) != 1 || t.DataType != onnx.Float16 && t.DataType != onnx.BFloat16 {
			continue
		}
		mantissa, _ := math.Frexp(t.F[0])
		if short := math.Ldexp(mantissa, 5); short != math.Trunc(short) {
			bound = max(bound, math.Ldexp(8, -floatTypes[t.DataType].bits))
		}
	}
	return bound
}

// ulps are allowed where results are rounded, in units in the last place of the tensor's greatest magnitude. Elements
// near zero are sums of greater ones, so counting their own units would say nothing.
var ulps = map[onnx.DataType]float64{onnx.Float: 16, onnx.Float16: 8, onnx.BFloat16: 8, onnx.Double: 16}

// fewTerms are added up within the ulps; the roundings of longer sums grow with them.
const fewTerms = 128

// allowedULPs are the ulps of sums of so many terms.
func allowedULPs(t onnx.DataType, terms int64) float64 {
	return ulps[t] * max(1, float64(terms)/fewTerms)
}

// mismatch says what differs in an output besides floats; by names what gives got.
func mismatch(name, by string, want, got *reference.Tensor, exact bool) error {
	switch {
	case want == nil || got == nil:
		return fmt.Errorf("output %q has no value", name)
	case !slices.Equal(want.Shape, got.Shape):
		return fmt.Errorf("output %q has the shape %v, %s gives %v", name, want.Shape, by, got.Shape)
	case !exact && want.DataType != got.DataType:
		return fmt.Errorf("output %q is %s, %s gives %s", name, want.DataType, by, got.DataType)
	case !want.IsFloat() && (!slices.Equal(want.I, got.I) || !slices.Equal(want.S, got.S)):
		return fmt.Errorf("output %q, of type %s, has other elements", name, want.DataType)
	}
	return nil
}

// compareOutputs compares all outputs of a site and adds to the figures; its error says what differs.
func compareOutputs(c *candidate, names []string, want, got []*reference.Tensor, exact bool, r *CheckReport) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d outputs instead of %d", len(got), len(want))
	}
	for i := range want {
		name := names[i]
		if err := mismatch(name, c.target(), want[i], got[i], exact); err != nil {
			return err
		}
		if !want[i].IsFloat() {
			continue
		}
		difference, scale := distance(want[i].F, got[i].F)
		if exact {
			r.Structural = max(r.Structural, relative(difference, scale))
			if difference > c.slice.structuralBound()*scale {
				return fmt.Errorf("output %q by %.3g, its greatest magnitude being %.3g", name, difference, scale)
			}
			continue
		}
		allowed := c.allowed(want[i].DataType, scale)
		if r.Tolerance == 0 || difference*r.Tolerance > r.MaxAbs*allowed { // the worst case is the nearest to its bound
			r.MaxAbs, r.MaxRel = difference, relative(difference, scale)
			r.Tolerance, r.ToleranceRel = allowed, relative(allowed, scale)
		}
		if difference > allowed {
			return fmt.Errorf("output %q by %.3g, its greatest magnitude being %.3g and %.3g allowed", name, difference,
				scale, allowed)
		}
	}
	return nil
}

// allowed returns the difference that is allowed in an output of type t with this greatest magnitude, where results are
// rounded.
func (c *candidate) allowed(t onnx.DataType, magnitude float64) float64 {
	if f, ok := floatTypes[c.coarse]; ok && f.bits < floatTypes[t].bits {
		t = c.coarse
	}
	return allowedULPs(t, c.terms) * spacing(t, magnitude)
}

// distance returns the greatest difference where want is finite, and the greatest finite magnitude of want. A got that
// is not finite there is as far as can be.
func distance(want, got []float64) (difference, scale float64) {
	if len(want) != len(got) {
		return math.MaxFloat64, 0
	}
	for i, w := range want {
		if !isFinite(w) {
			continue
		}
		scale = max(scale, math.Abs(w))
		if d := math.Abs(w - got[i]); d > difference || !isFinite(d) {
			difference = d
			if !isFinite(d) {
				difference = math.MaxFloat64
			}
		}
	}
	return difference, scale
}

func relative(difference, scale float64) float64 {
	if difference == 0 {
		return 0
	}
	if scale == 0 {
		return math.MaxFloat64
	}
	// Numbers below the least normal one have no digits of their own to lose.
	return min(difference/max(scale, leastNormal(onnx.Float)), math.MaxFloat64)
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func allFinite(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !isFinite(x) })
}
