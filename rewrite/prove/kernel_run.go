package prove

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A kernel rounds at other points than the op's definition and sums in another order, in float32. The effect depends on
// the inputs: little for numbers whose rounding errors cancel, thousands of units for a long sum of equal numbers, and
// any amount relative to a result in which larger numbers cancel. So if a kernel is off by more than a few units in the
// last place, the definition is evaluated again with other rounding (reference.Options.Perturb). The kernel may be as
// far from the definition as these evaluations are, times roundingFactor.
const (
	roundingFactor = 4
	perturbations  = 3
)

// vague is the part of the largest magnitude above which an allowed difference says nothing about a kernel.
const vague = 0x1p-10

// A KernelRun is one run of the kernel of a fused op: its inputs, nil if left out, and the definition's results.
type KernelRun struct {
	Op       *fused.Op
	Site     fused.Site
	In, Want []*reference.Tensor // outputs that the site leaves out are nil
	// Settle, if not nil, removes from the results whatever the op leaves open.
	Settle func(want, got []*reference.Tensor)

	perturbed [][]*reference.Tensor
	steps     *Steps // nil for ops without a rounding to 8 bits
}

// KernelFigures has the largest difference of a run, relative to the largest magnitude or to the effect of rounding
// alone, and whether a fault of the kernel would have shown.
type KernelFigures struct {
	MaxRel float64
	Tells  bool
}

// Compare compares the kernel's results with the definition's.
func (r *KernelRun) Compare(got []*reference.Tensor) (f KernelFigures, err error) {
	if len(got) != len(r.Want) {
		return f, fmt.Errorf("%d outputs instead of %d", len(got), len(r.Want))
	}
	if r.steps, err = StepsOf(r.Op, r.Site, r.In, reference.Options{}); err != nil {
		return f, &EvalError{Err: err}
	}
	want, got := r.settled(got)
	if f.Tells, err = r.settleScores(want, got); err != nil {
		return f, &EvalError{Err: err}
	}
	comparison := Comparison{Names: r.Op.OutputNames(), By: "the kernel", Some: true,
		Bound: func(_ int, t onnx.DataType, scale float64) float64 {
			return ULPs[t]*Spacing(t, scale) + float64(productsOf(r.Site))/2*Spacing(onnx.Float, 0)
		},
		Wider: func(d *Difference) error {
			if _, known := FloatTypes[d.Type]; !known { // a type of 8 bits: Steps has settled it
				return nil
			}
			spread, err := r.spread(d.Output)
			if err != nil {
				return &EvalError{Err: err}
			}
			if wide := roundingFactor * spread; wide > d.Allowed { // may be infinite
				d.Allowed, f.Tells = wide, f.Tells && wide <= vague*d.Scale
			}
			d.Scale = max(d.Scale, spread)
			return nil
		},
		Each: func(d *Difference) { f.MaxRel = max(f.MaxRel, Relative(d.Far, d.Scale)) }}
	err = comparison.Compare(want, got)
	return f, err
}

// settled returns the results of the definition and the kernel without the parts that the op leaves open.
func (r *KernelRun) settled(got []*reference.Tensor) (w, g []*reference.Tensor) {
	w, g = slices.Clone(r.Want), slices.Clone(got)
	if r.steps != nil {
		r.steps.Settle(0, w, g)
	}
	if r.Settle != nil {
		for i, t := range w {
			if t == nil {
				g[i] = nil
			}
		}
		r.Settle(w, g)
	}
	return w, g
}

// spread returns how far rounding moves an output of the definition; infinite if it causes an overflow.
func (r *KernelRun) spread(output int) (float64, error) {
	if r.perturbed == nil {
		if err := r.perturb(); err != nil {
			return 0, err
		}
	}
	most := 0.0
	for _, other := range r.perturbed {
		want, got := r.settled(other)
		if !SameChoices(want, got) {
			continue
		}
		d, _ := Distance(want[output].F, got[output].F)
		most = max(most, d)
	}
	return most, nil
}

// SameChoices reports whether integer outputs, such as expert ids, are equal. If they differ, the floats belong to
// different experts and prove nothing.
func SameChoices(want, got []*reference.Tensor) bool {
	for i, w := range want {
		if w != nil && !w.IsFloat() && (got[i] == nil || !slices.Equal(w.I, got[i].I)) {
			return false
		}
	}
	return true
}

// perturb evaluates the definition with other rounding.
func (r *KernelRun) perturb() error {
	run, err := r.definition()
	if err != nil {
		return err
	}
	for seed := range uint64(perturbations) {
		out, err := run(reference.Options{Perturb: seed + 1}, r.In)
		if err != nil {
			return err
		}
		r.perturbed = append(r.perturbed, out)
	}
	return nil
}

// definition computes the op by its definition at the site.
func (r *KernelRun) definition() (Computation, error) {
	f, err := r.Op.Function(r.Site)
	if err != nil {
		return nil, err
	}
	return Op(r.Site.Opset, &onnx.Node{Domain: fused.Domain, OpType: r.Op.Name, Overload: f.Overload,
		Attributes: r.Site.Attributes, Outputs: make([]*onnx.Value, len(r.Want))}, f), nil
}

// CompareKernel compares a kernel's results at a site with those of the op's definition on the same inputs (nil if left
// out), as the check of a site does. maxRel is the largest difference relative to the largest magnitude.
func CompareKernel(op *fused.Op, s fused.Site, in, want, got []*reference.Tensor) (maxRel float64, err error) {
	run := &KernelRun{Op: op, Site: s, In: in, Want: want, Settle: SettleRounded(op, s)}
	figures, err := run.Compare(got)
	return figures.MaxRel, err
}

// productsOf returns the number of products in the sums of an op with quantized weights, in one product or two
// consecutive ones. Each product is float32. Below the smallest normal number it is rounded to whole steps, however
// small the sum is.
func productsOf(s fused.Site) int64 {
	experts := fused.Read[fused.QMoE](s.Attributes)
	return fused.Read[fused.Embedding](s.Attributes).K + experts.Hidden + experts.Inner
}

// SettleRounded returns a function that makes equal the parts that the op leaves open (fused.Op.Open), or nil if there
// are no such parts.
func SettleRounded(op *fused.Op, s fused.Site) func(want, got []*reference.Tensor) {
	open := op.Open(s)
	if open == 0 {
		return nil
	}
	return func(want, got []*reference.Tensor) {
		for i := range min(len(want), len(got)) {
			if want[i] == nil || got[i] == nil || len(want[i].F) != len(got[i].F) {
				continue
			}
			got[i] = Clone(got[i])
			most := 0.0
			for _, x := range want[i].F {
				most = max(most, math.Abs(x))
			}
			for j, x := range want[i].F {
				if math.Abs(got[i].F[j]-x) <= open*most {
					got[i].F[j] = x
				}
			}
		}
	}
}

// Clone returns a copy whose elements can be changed.
func Clone(t *reference.Tensor) *reference.Tensor {
	c := *t
	c.F, c.I = slices.Clone(t.F), slices.Clone(t.I)
	return &c
}
