package sites

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// structuralBound is structuralTolerance, or what a constant of a half type may be off from the number that was meant,
// carried through a few operations: 0.044715 is 0.04473 in float16. Short numbers such as 0.5 or 3 are exact.
func (s *slice) structuralBound() float64 {
	bound := prove.StructuralTolerance
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
			bound = max(bound, math.Ldexp(8, -prove.FloatTypes[t.DataType].Bits))
		}
	}
	return bound
}

// compareOutputs compares all outputs of a site and adds to the figures; its error says what differs.
func compareOutputs(c *Site, names []string, want, got []*reference.Tensor, exact bool, r *prove.CheckReport) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d outputs instead of %d", len(got), len(want))
	}
	for i := range want {
		name := names[i]
		if err := prove.Mismatch(name, c.OpName(), want[i], got[i], exact); err != nil {
			return err
		}
		if !want[i].IsFloat() {
			continue
		}
		difference, scale := prove.Distance(want[i].F, got[i].F)
		if exact {
			r.Structural = max(r.Structural, prove.Relative(difference, scale))
			if difference > c.slice.structuralBound()*scale {
				return fmt.Errorf("output %q by %.3g, its greatest magnitude being %.3g", name, difference, scale)
			}
			continue
		}
		allowed := c.allowed(want[i].DataType, scale)
		if r.Tolerance == 0 || difference*r.Tolerance > r.MaxAbs*allowed { // the worst case is the nearest to its bound
			r.MaxAbs, r.MaxRel = difference, prove.Relative(difference, scale)
			r.Tolerance, r.ToleranceRel = allowed, prove.Relative(allowed, scale)
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
func (c *Site) allowed(t onnx.DataType, magnitude float64) float64 {
	if f, ok := prove.FloatTypes[c.coarse]; ok && f.Bits < prove.FloatTypes[t].Bits {
		t = c.coarse
	}
	return prove.AllowedULPs(t, c.terms) * prove.Spacing(t, magnitude)
}
