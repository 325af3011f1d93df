package rewrite

import (
	"fmt"
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

// kernelRun is one run of the kernel of a fused op: its inputs, nil ones left out, and what the definition gives.
type kernelRun struct {
	op       *fused.Op
	site     fused.Site
	in, want []*reference.Tensor // outputs that the site leaves out are nil
	// settle, unless it is nil, takes out of results what the op leaves open.
	settle func(want, got []*reference.Tensor)

	perturbed [][]*reference.Tensor
}

// kernelFigures are the greatest difference of a run, as a part of the greatest magnitude or of what roundings alone
// change, and whether a fault of the kernel would have shown.
type kernelFigures struct {
	maxRel float64
	tells  bool
}

// compare compares what the kernel gives with the definition.
func (r *kernelRun) compare(names []string, got []*reference.Tensor) (kernelFigures, error) {
	f := kernelFigures{}
	if len(got) != len(r.want) {
		return f, fmt.Errorf("%d outputs instead of %d", len(got), len(r.want))
	}
	want, got := r.settled(got)
	var err error
	if f.tells, err = r.settleScores(want, got); err != nil {
		return f, &evalError{err}
	}
	for i, w := range want {
		if w == nil {
			continue
		}
		if err := mismatch(names[i], "the kernel", w, got[i], false); err != nil {
			return f, err
		}
		if !w.IsFloat() {
			continue
		}
		difference, scale := distance(w.F, got[i].F)
		allowed := ulps[w.DataType]*spacing(w.DataType, scale) + float64(productsOf(r.site))/2*spacing(onnx.Float, 0)
		if difference > allowed {
			spread, err := r.spread(i)
			if err != nil {
				return f, &evalError{err}
			}
			if wide := roundingFactor * spread; wide > allowed { // infinite, perhaps
				allowed, f.tells = wide, f.tells && wide <= vague*scale
			}
			scale = max(scale, spread)
		}
		f.maxRel = max(f.maxRel, relative(difference, scale))
		if difference > allowed {
			return f, fmt.Errorf("output %q by %.3g, its greatest magnitude being %.3g and %.3g allowed", names[i],
				difference, scale, allowed)
		}
	}
	return f, nil
}

// settled returns what the definition and the kernel give, without what the op leaves open.
func (r *kernelRun) settled(got []*reference.Tensor) (w, g []*reference.Tensor) {
	w, g = slices.Clone(r.want), slices.Clone(got)
	if r.settle != nil {
		for i, t := range w {
			if t == nil {
				g[i] = nil
			}
		}
		r.settle(w, g)
	}
	return w, g
}

// spread is how far roundings alone take an output of the definition; infinite where they make it overflow.
func (r *kernelRun) spread(output int) (float64, error) {
	if r.perturbed == nil {
		if err := r.perturb(); err != nil {
			return 0, err
		}
	}
	most := 0.0
	for _, other := range r.perturbed {
		want, got := r.settled(other)
		if !sameChoices(want, got) {
			continue
		}
		d, _ := distance(want[output].F, got[output].F)
		most = max(most, d)
	}
	return most, nil
}

// sameChoices reports whether integer outputs, such as the ids of experts, are equal: floats that belong to others say
// nothing.
func sameChoices(want, got []*reference.Tensor) bool {
	for i, w := range want {
		if w != nil && !w.IsFloat() && !slices.Equal(w.I, got[i].I) {
			return false
		}
	}
	return true
}

// perturb evaluates the definition with other roundings.
func (r *kernelRun) perturb() error {
	f, err := r.op.Function(r.site)
	if err != nil {
		return err
	}
	node := &onnx.Node{Domain: fused.Domain, OpType: r.op.Name, Overload: f.Overload, Attributes: r.site.Attributes,
		Outputs: make([]*onnx.Value, len(r.want))}
	for seed := range uint64(perturbations) {
		e := reference.NewForOpset(r.site.Opset, []*onnx.Function{f}, reference.Options{Perturb: seed + 1})
		out, err := e.Op(node, r.in)
		if err != nil {
			return err
		}
		r.perturbed = append(r.perturbed, out)
	}
	return nil
}

// CompareKernel compares what a kernel gives at a site with what the op's definition gives on the same inputs, nil ones
// left out, as the check of a site does. maxRel is the greatest difference as a part of the greatest magnitude.
func CompareKernel(op *fused.Op, s fused.Site, in, want, got []*reference.Tensor) (maxRel float64, err error) {
	run := &kernelRun{op: op, site: s, in: in, want: want, settle: settleRounded(op, s)}
	names := make([]string, len(op.Outputs))
	for i, p := range op.Outputs {
		names[i] = p.Name
	}
	figures, err := run.compare(names, got)
	return figures.maxRel, err
}
