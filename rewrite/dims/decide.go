package dims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A variant is a reading that may be right, and numbers that may follow from a size besides.
type variant struct {
	*reading
	numbers map[*constant]func(n int64) float64
	// toggled is the constant in which it differs from the variant that it was made from, nil if it was found.
	toggled  *constant
	rows     bool // each row computed alone is the same as among others
	evidence *evidence
	outputs  outputs
}

// A Refusal says why a dimension is not freed.
type Refusal struct {
	Dim, Node, Reason string
}

func (r *Refusal) Error() string {
	at := ""
	if r.Node != "" {
		at = " at " + r.Node
	}
	return fmt.Sprintf("%s cannot be freed%s: %s", r.Dim, at, r.Reason)
}

// tests are the sizes that variants are tried at.
func tests(size int64) []int64 {
	list := []int64{size + 1, size + 2, 2 * size, 3 * size, size - 1, size / 2, 1}
	var kept []int64
	for _, n := range list {
		if n >= 1 && n != size && !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}

func (e *evidence) tryVariant(v *variant, n int64) outcome { return e.tryWith(v, n, nil) }

// tryWith runs a variant at a size, on inputs of the search or on others.
func (e *evidence) tryWith(v *variant, n int64, in map[string]*reference.Tensor) outcome {
	if in == nil {
		if x := e.try(v.reading, n); len(v.numbers) == 0 || x.err != nil {
			return x
		}
		in = e.search.in[n]
	}
	replaced := map[*constant]*reference.Tensor{}
	for c, f := range v.numbers {
		replaced[c] = &reference.Tensor{DataType: c.tensor.DataType, Shape: c.tensor.Shape, F: []float64{f(n)}}
	}
	return e.runWith(v.reading, e.sizes(e.dim, n), in, reference.Options{Exact: true}, replaced)
}

// outputs are what a variant computes at the sizes at which it runs, nil at those at which its numbers are fractions.
type outputs map[int64][]*reference.Tensor

// judge tries a variant at several sizes. It returns why the variant is wrong, or nil.
func (s *search) judge(v *variant) error {
	e, err := s.evidence(v.reading)
	if err != nil {
		return err
	}
	v.evidence = e
	size := e.dims[e.dim].Size
	got := outputs{}
	v.outputs = got
	longer := false
	for _, n := range tests(size) {
		x := e.tryVariant(v, n)
		if errors.Is(x.err, errSteps) {
			return x.err
		}
		if errors.Is(x.err, errFraction) {
			got[n] = nil
			continue
		}
		if x.err != nil {
			continue
		}
		got[n] = x.outputs
		longer = longer || n > size
		if e.causal && !e.agreeRows(e.original, x.outputs, 0, 0, int(min(n, size))) {
			return fmt.Errorf("at %d its first rows are others than at %d", n, size)
		}
		if e.tail && n > size && !e.readsFrom(v, n, int(n-1), x.outputs) {
			return fmt.Errorf("at %d nothing follows from the last row", n)
		}
	}
	if !longer {
		return errors.New("it runs at no greater size")
	}
	if n := 2 * size; e.depends && got[n] != nil && !e.readsFrom(v, n, int(size), got[n]) {
		return fmt.Errorf("at %d nothing follows from the rows after %d", n, size)
	}
	if e.rows || size == 1 && e.aligned() {
		alone, err := e.sameAlone(v, got)
		if err != nil {
			return err
		}
		if v.rows = alone; e.rows && !alone {
			return errors.New("rows computed alone are others than those computed together")
		}
	}
	return nil
}

// readsFrom reports whether outputs follow from the rows of the inputs from one on.
func (e *evidence) readsFrom(v *variant, n int64, from int, got []*reference.Tensor) bool {
	other, err := e.inputs(3, e.sizes(e.dim, n))
	if err != nil {
		return true
	}
	x := e.tryWith(v, n, e.mixed(e.search.in[n], other, from))
	return x.err == nil && !equal(got, x.outputs, tolerance)
}

// sameAlone reports whether the original computes of each row what the variant computes of it among others.
func (e *evidence) sameAlone(v *variant, got outputs) (bool, error) {
	size := e.dims[e.dim].Size
	for n, list := range got {
		if n < size || list == nil { // smaller ones were compared
			continue
		}
		for from := int64(0); from < n; from += size {
			from := min(from, n-size)
			x := e.run(&reading{}, e.sizes(-1, 0), e.window(e.search.in[n], int(from), int(from+size)))
			if errors.Is(x.err, errSteps) {
				return false, x.err
			}
			if x.err != nil || !e.agreeRows(x.outputs, list, 0, int(from), int(size)) {
				return false, nil
			}
		}
	}
	return true, nil
}

// variants finds what a dimension may be in the model: the readings that agree with the original in all ways that can
// be tested, and those that differ from them by one number that may be a size or not.
func (s *search) variants() ([]*variant, error) {
	name := s.dims[s.dim].Name
	var l list
	var rejected []*variant
	for r, err := range s.readings {
		switch {
		case errors.Is(err, errSteps):
			return nil, err
		case errors.Is(err, errTrials) || err != nil && s.stuck.node == nil:
			return nil, &Refusal{name, "", err.Error()}
		case err != nil:
			return nil, &Refusal{name, s.stuck.node.Label(), s.stuck.err.Error()}
		}
		v := &variant{reading: r}
		if err := s.judge(v); errors.Is(err, errSteps) {
			return nil, err
		} else if err != nil {
			rejected, l.wrong = append(rejected, v), cmp.Or(l.wrong, err)
			continue
		}
		if l.add(v); v.rows { // the original tells all outputs at other sizes
			break
		}
	}
	if !slices.ContainsFunc(l.kept, (*variant).related) { // more constants may be sizes though the model runs
		for _, v := range rejected {
			if err := s.addToggles(&l, v, s.together(v)); err != nil {
				return nil, err
			}
		}
	}
	if len(l.kept) == 0 {
		return nil, &Refusal{name, "", "no choice of constants agrees with the model at its size: " + l.wrong.Error()}
	}
	l.keepRelated()
	for i := 0; i < len(l.kept) && i < mostReadings; i++ {
		if v := l.kept[i]; !v.rows { // else nothing is left open
			if err := s.addToggles(&l, v, s.toggles(v)); err != nil {
				return nil, err
			}
		}
	}
	l.keepRelated()
	return l.kept, nil
}

// related reports whether the original tells what a variant must compute at other sizes.
func (v *variant) related() bool { return v.rows || v.evidence.causal }

// keepRelated leaves out variants about which the original tells nothing, if it does about others: rows that follow
// from their own inputs, or from those before them, do so at all sizes.
func (l *list) keepRelated() {
	for _, holds := range []func(v *variant) bool{func(v *variant) bool { return v.rows }, (*variant).related} {
		if slices.ContainsFunc(l.kept, holds) {
			l.kept = slices.DeleteFunc(l.kept, func(v *variant) bool { return !holds(v) })
		}
	}
}

// list collects variants that compute different outputs.
type list struct {
	kept  []*variant
	wrong error // why the first one was refused
}

// add keeps a variant unless one is there that computes the same at the same sizes, or that runs at sizes at which this
// one fails, which it replaces.
func (l *list) add(v *variant) {
	for i, old := range l.kept {
		switch {
		case sameOutputs(old.outputs, v.outputs) && runsWith(old.outputs, v.outputs) &&
			runsWith(v.outputs, old.outputs):
			return
		case better(old.outputs, v.outputs):
			return
		case better(v.outputs, old.outputs):
			l.kept[i] = v
			return
		}
	}
	l.kept = append(l.kept, v)
}

// runsWith reports whether a variant runs at all sizes at which another one does.
func runsWith(a, b outputs) bool {
	for n, x := range b {
		if x != nil && a[n] == nil {
			return false
		}
	}
	return true
}

// addToggles adds those of the variants that agree with the original.
func (s *search) addToggles(l *list, from *variant, toggles []*variant) error {
	for _, t := range toggles {
		if err := s.judge(t); errors.Is(err, errSteps) {
			return err
		} else if err != nil {
			continue
		}
		l.add(t)
	}
	return nil
}

// sameOutputs reports whether two variants run at the same sizes and compute the same there, fractions left out.
func sameOutputs(a, b outputs) bool {
	if len(a) != len(b) {
		return false
	}
	for n, x := range a {
		if y, ok := b[n]; !ok || x != nil && y != nil && !equal(x, y, tolerance) {
			return false
		}
	}
	return true
}

// better reports whether a variant runs at all sizes at which another one runs, and at others at which that one fails.
// The model could be run at these sizes before its dimension was baked, if it has no least or greatest size.
func better(a, b outputs) bool {
	if !runsWith(a, b) {
		return false
	}
	for n, x := range a {
		if _, ok := b[n]; x != nil && !ok {
			return true
		}
	}
	return false
}

// ambiguous refuses a dimension of which more than one variant remains.
func (a *analysis) ambiguous(dim int, list []*variant) error {
	d := a.dims[dim]
	r := &Refusal{Dim: d.Name}
	if c := list[len(list)-1].toggled; c != nil {
		r.Node = c.node.Label()
		r.Reason = fmt.Sprintf("its constant %q may be a number of the model as well as come from the size %d, and "+
			"the model cannot tell", c.value.Name, d.Size)
	} else {
		at := difference(list[0].reading, list[1].reading)
		r.Node = at.node.Label()
		r.Reason = fmt.Sprintf("several of its numbers may be the size %d, and the model cannot tell which", d.Size)
	}
	r.Reason += "; give recorded outputs of another size"
	return r
}

// difference returns a slot in which two readings differ.
func difference(a, b *reading) (at slot) {
	found := false
	less := func(s slot) {
		if !found || s.node.Label() < at.node.Label() {
			at, found = s, true
		}
	}
	for s, f := range a.factors {
		if !slices.Equal(f, b.factors[s]) {
			less(s)
		}
	}
	for s, f := range b.factors {
		if !slices.Equal(f, a.factors[s]) {
			less(s)
		}
	}
	return at
}

// sizeOf returns the sizes of the dimensions in given inputs, nil if they contradict each other.
func (a *analysis) sizeOf(in map[string]*reference.Tensor) []int64 {
	list := make([]int64, len(a.dims))
	for i, d := range a.dims {
		for _, p := range d.places {
			t := in[p.input.Name]
			if t == nil || p.axis >= t.Rank() || list[i] > 0 && list[i] != int64(t.Shape[p.axis]) {
				return nil
			}
			list[i] = int64(t.Shape[p.axis])
		}
	}
	return list
}

// sample is a recorded case.
type sample struct {
	sizes   []int64
	in      map[string]*reference.Tensor
	outputs map[string]*reference.Tensor
}

// samples decodes the recorded cases that give the inputs of the model.
func (a *analysis) samples() (list []*sample, err error) {
	for _, c := range a.Recorded {
		s := &sample{}
		if s.in, err = converted(c.Inputs); err != nil {
			return nil, err
		}
		if s.outputs, err = converted(c.Outputs); err != nil {
			return nil, err
		}
		if s.sizes = a.sizeOf(s.in); s.sizes != nil && golden.FitInputs(a.model, c) == nil {
			list = append(list, s)
		}
	}
	return list, nil
}

// recordedTolerance is how far an output may be from the recorded one, as a fraction of the greatest magnitude.
const recordedTolerance = 1e-4

// reproduces reports whether a choice computes what was recorded.
func (a *analysis) reproduces(c *choice, s *sample) (bool, error) {
	replaced := map[*constant]*reference.Tensor{}
	for i, v := range c.variants {
		for k, f := range v.numbers {
			replaced[k] = &reference.Tensor{DataType: k.tensor.DataType, Shape: k.tensor.Shape,
				F: []float64{f(s.sizes[i])}}
		}
	}
	x := a.runWith(c.reading, s.sizes, s.in, reference.Options{}, replaced)
	if x.err != nil {
		if errors.Is(x.err, errSteps) {
			return false, x.err
		}
		return false, nil
	}
	for i, v := range a.model.Graph.Outputs {
		if want := s.outputs[v.Name]; want != nil && !near(want, x.outputs[i], recordedTolerance) {
			return false, nil
		}
	}
	return true, nil
}
