package prove

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A kernel rounds in other places than the op's definition and adds up in another order, in float32. How far that takes
// it depends on the inputs: little for numbers whose roundings cancel, by thousands of units for a long sum of equal
// numbers, and without any relation to a result in which greater numbers cancel. So where a kernel is further off than
// a few units in the last place, the definition is evaluated again with other roundings (reference.Options.Perturb).
// The kernel may be as far from the definition as these evaluations are, times roundingFactor.
const (
	roundingFactor = 4
	perturbations  = 3
)

// vague is the part of the greatest magnitude from which an allowed difference tells nothing of a kernel.
const vague = 0x1p-10

// KernelRun is one run of the kernel of a fused op: its inputs, nil ones left out, and what the definition gives.
type KernelRun struct {
	Op       *fused.Op
	Site     fused.Site
	In, Want []*reference.Tensor // outputs that the site leaves out are nil
	// Settle, unless it is nil, takes out of results what the op leaves open.
	Settle func(want, got []*reference.Tensor)

	perturbed [][]*reference.Tensor
}

// KernelFigures are the greatest difference of a run, as a part of the greatest magnitude or of what roundings alone
// change, and whether a fault of the kernel would have shown.
type KernelFigures struct {
	MaxRel float64
	Tells  bool
}

// Compare compares what the kernel gives with the definition.
func (r *KernelRun) Compare(got []*reference.Tensor) (f KernelFigures, err error) {
	if len(got) != len(r.Want) {
		return f, fmt.Errorf("%d outputs instead of %d", len(got), len(r.Want))
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
			spread, err := r.spread(d.Output)
			if err != nil {
				return &EvalError{Err: err}
			}
			if wide := roundingFactor * spread; wide > d.Allowed { // infinite, perhaps
				d.Allowed, f.Tells = wide, f.Tells && wide <= vague*d.Scale
			}
			d.Scale = max(d.Scale, spread)
			return nil
		},
		Each: func(d *Difference) { f.MaxRel = max(f.MaxRel, Relative(d.Far, d.Scale)) }}
	err = comparison.Compare(want, got)
	return f, err
}

// settled returns what the definition and the kernel give, without what the op leaves open.
func (r *KernelRun) settled(got []*reference.Tensor) (w, g []*reference.Tensor) {
	w, g = slices.Clone(r.Want), slices.Clone(got)
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

// spread is how far roundings alone take an output of the definition; infinite where they make it overflow.
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

// SameChoices reports whether integer outputs, such as the ids of experts, are equal: floats that belong to others say
// nothing.
func SameChoices(want, got []*reference.Tensor) bool {
	for i, w := range want {
		if w != nil && !w.IsFloat() && (got[i] == nil || !slices.Equal(w.I, got[i].I)) {
			return false
		}
	}
	return true
}

// perturb evaluates the definition with other roundings.
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

// CompareKernel compares what a kernel gives at a site with what the op's definition gives on the same inputs, nil ones
// left out, as the check of a site does. maxRel is the greatest difference as a part of the greatest magnitude.
func CompareKernel(op *fused.Op, s fused.Site, in, want, got []*reference.Tensor) (maxRel float64, err error) {
	run := &KernelRun{Op: op, Site: s, In: in, Want: want, Settle: SettleRounded(op, s)}
	figures, err := run.Compare(got)
	return figures.MaxRel, err
}

// productsOf is the number of products in a sum of an op with quantised weights: in one, or in two after each other.
// Each is in float32, where a product below the least normal number is rounded to whole steps, however small their sum
// is.
func productsOf(s fused.Site) int64 {
	return s.Attr("k").Int + s.Attr("hidden").Int + s.Attr("inner").Int
}

// SettleRounded takes what the op leaves open (fused.Op.Open) for equal; nil for ops that leave nothing open.
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

// Clone returns a tensor whose elements can be changed.
func Clone(t *reference.Tensor) *reference.Tensor {
	c := *t
	c.F, c.I = slices.Clone(t.F), slices.Clone(t.I)
	return &c
}
