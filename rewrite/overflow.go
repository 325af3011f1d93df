package rewrite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// outlier rows contain one number whose square overflows the type; the other numbers are normal.
var outlier = kind{"outlier", func(r *rand.Rand, t onnx.DataType, v []float64, row int) {
	for i := range v {
		if v[i] = r.NormFloat64(); row > 0 && i%row == i/row%row {
			v[i] = 2 * math.Sqrt(greatest(t))
		}
	}
}}

// kinds returns the kinds of a list. A site that computes in float16 is tried on outliers too, because activations of
// real models reach 256, and the square of 256 overflows float16.
func (c *candidate) kinds(list []kind) []kind {
	if c.narrowest == onnx.Float16 {
		return append(slices.Clip(list), outlier)
	}
	return list
}

// overflows notes inputs that make the matched nodes overflow and for which the op returns other numbers, if the nodes
// compute in a half type: numbers of real models do not overflow float32.
func (c *candidate) overflows(inputs string, want, got []*reference.Tensor, r *CheckReport) {
	if len(want) != len(got) || !c.narrowest.IsHalf() {
		return
	}
	for i, w := range want {
		g := got[i]
		if w == nil || g == nil || !w.IsFloat() || len(w.F) != len(g.F) {
			continue
		}
		difference, scale := distance(w.F, g.F)
		if difference > c.allowed(w.DataType, scale) {
			r.overflowsOn(inputs)
		}
	}
	r.numbersForNone(inputs, want, got)
}

// numbersForNone notes inputs for which the nodes return infinities or NaN and the op returns numbers.
func (r *CheckReport) numbersForNone(inputs string, want, got []*reference.Tensor) {
	for i, w := range want {
		if w == nil || got[i] == nil || len(w.F) != len(got[i].F) {
			continue
		}
		for j, x := range w.F {
			if !isFinite(x) && isFinite(got[i].F[j]) {
				r.overflowsOn(inputs)
				return
			}
		}
	}
}

// writeOverflow says at how many fused sites results differ where the nodes overflow.
func (r *Report) writeOverflow(b *strings.Builder) {
	sites, inputs := 0, []string{}
	for _, s := range r.Sites {
		if s.Status != Fused || s.Check == nil || len(s.Check.Overflow) == 0 {
			continue
		}
		sites++
		for _, name := range s.Check.Overflow {
			if !slices.Contains(inputs, name) {
				inputs = append(inputs, name)
			}
		}
	}
	if sites > 0 {
		fmt.Fprintf(b, "%-18s %s: results differ where the nodes overflow or return infinities or NaN, as on these "+
			"inputs: %s\n", "overflow", english.Counted(sites, "site"), strings.Join(inputs, ", "))
	}
}

func (r *CheckReport) overflowsOn(inputs string) {
	if !slices.Contains(r.Overflow, inputs) {
		r.Overflow = append(r.Overflow, inputs)
	}
}
