package prove

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/reference"
)

// A CheckReport holds the figures of a site's worst comparison.
type CheckReport struct {
	// MaxAbs is the largest difference in the graph's own types, and MaxRel the same relative to the largest magnitude
	// of the tensor. Tolerance is the allowed difference, and ToleranceRel the same relative to that magnitude.
	MaxAbs       float64 `json:"max_abs"`
	MaxRel       float64 `json:"max_rel"`
	Tolerance    float64 `json:"tolerance"`
	ToleranceRel float64 `json:"tolerance_rel"`
	// Structural is the largest difference in float64 without rounding, relative to the largest magnitude.
	Structural float64 `json:"structural_max_rel"`
	// Cases is the number of inputs that were tried.
	Cases int `json:"cases"`
	// Kernel is the largest difference between the kernel and the definition, relative to the largest magnitude; absent
	// if no kernel was run.
	Kernel *float64 `json:"kernel_max_rel,omitempty"`
	// KernelTold means that a fault of the kernel would have shown in one of its runs.
	KernelTold bool `json:"-"`
	// Repairs describes the inputs for which the matched nodes fail and the op does not; absent if there are no such
	// inputs.
	Repairs string `json:"repairs,omitempty"`
	// Overflow names the tried inputs for which either the matched nodes or the op overflow, or return infinities or
	// NaN, and the other returns numbers, or for which subnormal squares lose different digits; absent if there are no
	// such inputs.
	Overflow []string `json:"overflow,omitempty"`
	// Ties names the tried inputs for which a router has scores that are equal, or become equal by rounding, and the op
	// chooses another of these experts than the matched nodes; absent if there are no such inputs.
	Ties []string `json:"ties,omitempty"`
	// Shared means that the figures are from an equal site.
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

// rounded adds a difference in the graph's own types. The worst one is closest to its bound.
func (r *CheckReport) rounded(d *Difference) {
	if r.Tolerance == 0 || d.Far*r.Tolerance > r.MaxAbs*d.Allowed {
		r.MaxAbs, r.MaxRel = d.Far, Relative(d.Far, d.Scale)
		r.Tolerance, r.ToleranceRel = d.Allowed, Relative(d.Allowed, d.Scale)
	}
}

// An EvalError reports that a slice or a definition could not be evaluated. It says nothing about their equality.
type EvalError struct{ Err error }

func (e *EvalError) Error() string { return "cannot be checked: " + e.Err.Error() }
func (e *EvalError) Unwrap() error { return e.Err }
