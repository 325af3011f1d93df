package dims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A variant is a possible reading, with additional numbers that may depend on a size.
type variant struct {
	*reading
	numbers map[*constant]func(n int64) float64
	// toggled is the constant that distinguishes it from the variant that it was derived from, or nil if it was found
	// by the search.
	toggled  *constant
	rows     bool // whether each row computed separately equals the one among others
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

// tests returns the sizes at which variants are tried.
func tests(size int64) []int64 {
	list := []int64{size + 1, size + 2, 2 * size, 3 * size, size - 1, size - 2, size / 2, 1}
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

// outputs are a variant's outputs at the sizes at which it runs, nil if its numbers are fractions there.
type outputs map[int64][]*reference.Tensor

// judge tries a variant at several sizes. It returns an error if the variant is wrong.
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
			return fmt.Errorf("at %d its first rows differ from those at %d", n, size)
		}
		if e.tail && n > size && !e.readsFrom(v, n, int(n-1), x.outputs) {
			return fmt.Errorf("at %d no output depends on the last row", n)
		}
	}
	if !longer {
		return errors.New("it does not run at any larger size")
	}
	if n := 2 * size; e.depends && got[n] != nil && !e.readsFrom(v, n, int(size), got[n]) {
		return fmt.Errorf("at %d no output depends on the rows after %d", n, size)
	}
	if e.rows || size == 1 && e.aligned() {
		alone, err := e.sameAlone(v, got)
		if err != nil {
			return err
		}
		if v.rows = alone; e.rows && !alone {
			return errors.New("rows computed one at a time differ from rows computed together")
		}
	}
	return nil
}

// readsFrom reports whether outputs depend on the rows of the inputs starting at from.
func (e *evidence) readsFrom(v *variant, n int64, from int, got []*reference.Tensor) bool {
	other, err := e.inputs(3, e.sizes(e.dim, n))
	if err != nil {
		return true
	}
	x := e.tryWith(v, n, e.mixed(e.search.in[n], other, from))
	return x.err == nil && !equal(got, x.outputs, tolerance)
}

// sameAlone reports whether the original computes the same for rows at its size as the variant does for them among
// others.
func (e *evidence) sameAlone(v *variant, got outputs) (bool, error) {
	size := e.dims[e.dim].Size
	for n, list := range got {
		if n < size || list == nil { // smaller ones were compared
			continue
		}
		for from := int64(0); from < n; from += size {
			from := min(from, n-size)
			x := e.run(&reading{}, e.exported(), e.window(e.search.in[n], int(from), int(from+size)))
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

// variants returns the possible meanings of a dimension: the readings that agree with the original in all testable
// ways, and those that differ from these by one number that may be a size or not.
func (s *search) variants() ([]*variant, error) {
	name := s.dims[s.dim].Name
	var l list
	var rejected []*variant
	for r, err := range s.readings {
		switch {
		case errors.Is(err, errSteps):
			return nil, err
		case err != nil && (s.runs || s.stuck.node == nil):
			return nil, &Refusal{name, "", err.Error()}
		case err != nil:
			return nil, &Refusal{name, s.stuck.node.Label(), s.reason()}
		}
		v := &variant{reading: r}
		if err := s.judge(v); errors.Is(err, errSteps) {
			return nil, err
		} else if err != nil {
			rejected, l.wrong = append(rejected, v), cmp.Or(l.wrong, err)
			continue
		}
		if l.add(v); v.rows { // the original determines all outputs at other sizes
			break
		}
	}
	if !slices.ContainsFunc(l.kept, (*variant).related) { // other constants may be sizes although the model runs
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
		if v := l.kept[i]; !v.rows { // else nothing is open
			if err := s.addToggles(&l, v, s.toggles(v)); err != nil {
				return nil, err
			}
		}
	}
	l.keepRelated()
	all := slices.Clone(l.kept)
	return slices.DeleteFunc(l.kept, func(v *variant) bool { // one that replaced another may beat a third
		return slices.ContainsFunc(all, func(w *variant) bool { return better(w.outputs, v.outputs) })
	}), nil
}

// reason says why the model does not run beyond the node where the search is stuck.
func (s *search) reason() string {
	if c := s.unknown[s.stuck.node]; c != nil {
		return fmt.Sprintf("its operands come from the constant %q of %v, which is made for the size %d, and it is "+
			"not known how it continues", c.value.Name, c.tensor.Shape, s.dims[s.dim].Size)
	}
	return s.stuck.err.Error()
}

// related reports whether the original determines the results of a variant at other sizes.
func (v *variant) related() bool { return v.rows || v.evidence.causal }

// keepRelated drops variants that the original does not determine, if it determines others: rows that depend only on
// their own inputs, or on these and earlier ones, do so at all sizes.
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

// add keeps a variant, unless another one computes the same at the same sizes. It replaces a variant that fails at some
// sizes at which this one runs.
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

// addToggles adds the variants that agree with the original.
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

// sameOutputs reports whether two variants run at the same sizes and compute the same there, ignoring fractions.
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
// The model ran at these sizes before its dimension was baked in, unless it has a minimum or maximum size.
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

// ambiguous refuses a dimension with several remaining variants.
func (a *analysis) ambiguous(dim int, list []*variant) error {
	d := a.dims[dim]
	r := &Refusal{Dim: d.Name}
	if c := list[len(list)-1].toggled; c != nil {
		r.Node = c.node.Label()
		r.Reason = fmt.Sprintf("its constant %q may be a number of the model or come from the size %d, and "+
			"the model does not show which", c.value.Name, d.Size)
	} else {
		at := difference(list[0].reading, list[1].reading)
		r.Node = at.node.Label()
		r.Reason = fmt.Sprintf("several of its numbers may be the size %d, and the model does not show which", d.Size)
	}
	r.Reason += "; pass recorded outputs of another size"
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

// sizeOf returns the sizes of the dimensions in the given inputs, or nil if they contradict each other.
func (a *analysis) sizeOf(in map[string]*reference.Tensor) []int64 {
	list := make([]int64, len(a.dims))
	for i, d := range a.dims {
		for _, p := range d.places {
			t := in[p.input.Name]
			if p.rest > 0 && t != nil && p.axis < t.Rank() {
				continue // whole axes show the size
			}
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

// samples decodes the recorded cases that have all inputs of the model.
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

// recordedTolerance is the allowed difference from a recorded output, relative to the largest magnitude.
const recordedTolerance = 1e-4

// reproduces reports whether a choice computes the recorded outputs.
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
