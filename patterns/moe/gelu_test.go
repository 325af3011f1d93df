package moe_test

import (
	"math"
	"testing"
)

// TestSpelledGelu has GELUs in the standard's ops, with constants rounded to half types.
func TestSpelledGelu(t *testing.T) {
	gelus := map[string]func(b *mixture, digits int, x value) value{
		"gelu": func(b *mixture, digits int, x value) value {
			erf := b.Op("Erf", b.Op("Mul", x, coarse(math.Sqrt(0.5), digits)))
			return b.Op("Mul", b.Op("Mul", x, 0.5), b.Op("Add", erf, 1.0))
		},
		"gelu_tanh": func(b *mixture, digits int, x value) value {
			cube := b.Op("Mul", b.Op("Mul", x, x), x)
			sum := b.Op("Add", x, b.Op("Mul", cube, coarse(0.044715, digits)))
			tanh := b.Op("Tanh", b.Op("Mul", sum, coarse(math.Sqrt(2/math.Pi), digits)))
			return b.Op("Mul", b.Op("Mul", x, 0.5), b.Op("Add", tanh, 1.0))
		},
	}
	for name, gelu := range gelus {
		for _, digits := range []int{24, 11, 8} {
			for _, inner := range []int{2, 3, 4, 6, 24} {
				for _, gated := range []bool{false, true} {
					b := newMixture(11, 2)
					y := b.sum(func(e int) value {
						a := gelu(b, digits, b.linear(b.rows, b.hidden, inner))
						if gated {
							a = b.Op("Mul", a, b.linear(b.rows, b.hidden, inner))
						}
						return b.Op("Mul", b.linear(a, inner, b.hidden), b.gate(e))
					})
					m, why := b.read(t, y)
					if m == nil {
						t.Errorf("%s of %d digits, %d channels, gated %v: %s", name, digits, inner, gated, why)
					} else if got := m.Attributes[0].String; got != name {
						t.Errorf("%s of %d digits, %d channels, gated %v: %s", name, digits, inner, gated, got)
					}
				}
			}
		}
	}
}

// coarse rounds x to the given number of binary digits.
func coarse(x float64, digits int) float64 {
	f, exp := math.Frexp(x)
	return math.Ldexp(math.RoundToEven(math.Ldexp(f, digits)), exp-digits)
}
