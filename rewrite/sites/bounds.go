package sites

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// structuralBound returns prove.StructuralTolerance, or the error of a half-type constant relative to the intended
// number, carried through a few operations: 0.044715 is 0.04473 in float16. Short numbers such as 0.5 or 3 are exact.
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

// allowed returns the bound of a site whose results are rounded.
func (c *Site) allowed(_ int, t onnx.DataType, magnitude float64) float64 {
	t = c.rounds(t)
	return prove.AllowedULPs(t, c.terms) * prove.Spacing(t, magnitude)
}

// rounds returns the type that an output of type t is rounded to on the way.
func (c *Site) rounds(t onnx.DataType) onnx.DataType {
	if f, ok := prove.FloatTypes[c.coarse]; ok && f.Bits < prove.FloatTypes[t].Bits {
		return c.coarse
	}
	return t
}
