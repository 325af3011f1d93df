package prove

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/reference"
)

// CheckReport holds the figures of a site's worst comparison.
type CheckReport struct {
	// MaxAbs is the greatest difference, in the graph's own types; MaxRel is it as a part of the greatest magnitude of
	// the tensor; Tolerance is the difference that was allowed, and ToleranceRel that as such a part.
	MaxAbs       float64 `json:"max_abs"`
	MaxRel       float64 `json:"max_rel"`
	Tolerance    float64 `json:"tolerance"`
	ToleranceRel float64 `json:"tolerance_rel"`
	// Structural is the greatest difference in float64 without roundings, as a part of the greatest magnitude.
	Structural float64 `json:"structural_max_rel"`
	// Cases is the number of inputs that were tried.
	Cases int `json:"cases"`
	// Kernel is the greatest difference of the kernel from the definition, as a part of the greatest magnitude; absent
	// when no kernel was run.
	Kernel *float64 `json:"kernel_max_rel,omitempty"`
	// KernelTold says that a fault of the kernel would have shown in one of its runs.
	KernelTold bool `json:"-"`
	// Repairs says for which inputs the matched nodes failed where the op does not; absent when they failed for none.
	Repairs string `json:"repairs,omitempty"`
	// Overflow names the tried inputs for which either the matched nodes or the op overflow, or return infinities or
	// NaN, and the other returns numbers, or on which subnormal squares lose different digits; absent when there are
	// none.
	Overflow []string `json:"overflow,omitempty"`
	// Ties names the tried inputs for which a router has equal scores, or scores that roundings make equal, and the op
	// chooses another one of these experts than the matched nodes; absent when there are none.
	Ties []string `json:"ties,omitempty"`
	// Shared says that the figures are those of an equal site.
	Shared bool `json:"shared,omitempty"`
}

// KernelRan adds the figures of a run of a kernel.
func (r *CheckReport) KernelRan(f KernelFigures) {
	if r.Kernel == nil || f.MaxRel > *r.Kernel {
		r.Kernel = &f.MaxRel
	}
	r.KernelTold = r.KernelTold || f.Tells
}

// NumbersForNone notes inputs for which the nodes return infinities or NaN and the op returns numbers.
func (r *CheckReport) NumbersForNone(inputs string, want, got []*reference.Tensor) {
	for i, w := range want {
		if w == nil || got[i] == nil || len(w.F) != len(got[i].F) {
			continue
		}
		for j, x := range w.F {
			if !IsFinite(x) && IsFinite(got[i].F[j]) {
				note(&r.Overflow, inputs)
				return
			}
		}
	}
}

// TiedOn notes inputs for which the op and the nodes choose differently among equal scores.
func (r *CheckReport) TiedOn(inputs string) { note(&r.Ties, inputs) }

// note adds the name of inputs to a list that lacks it.
func note(list *[]string, inputs string) {
	if !slices.Contains(*list, inputs) {
		*list = append(*list, inputs)
	}
}

// exact adds a difference without rounding.
func (r *CheckReport) exact(d *Difference) {
	r.Structural = max(r.Structural, Relative(d.Far, d.Scale))
}

// rounded adds a difference in the graph's own types. The worst one is the nearest to its bound.
func (r *CheckReport) rounded(d *Difference) {
	if r.Tolerance == 0 || d.Far*r.Tolerance > r.MaxAbs*d.Allowed {
		r.MaxAbs, r.MaxRel = d.Far, Relative(d.Far, d.Scale)
		r.Tolerance, r.ToleranceRel = d.Allowed, Relative(d.Allowed, d.Scale)
	}
}

// EvalError says that a slice or a definition could not be evaluated, which is no statement on their equality.
type EvalError struct{ Err error }

func (e *EvalError) Error() string { return "cannot be checked: " + e.Err.Error() }
func (e *EvalError) Unwrap() error { return e.Err }
