package dims

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference"
)

// evidence records how the original determines the results at other sizes of one dimension.
type evidence struct {
	*search
	in       map[string]*reference.Tensor // at the size of the export
	original []*reference.Tensor
	rows     bool // each row depends only on its own inputs, wherever it is
	causal   bool // each row depends only on its own inputs and earlier ones
	tail     bool // outputs depend on the last row
	depends  bool // outputs depend on rows after the first
	axes     []int
}

// tolerance is the allowed difference without rounding, relative to the largest magnitude.
const tolerance = 1e-9

// evidence tests the original at its one size. Its outputs grow with the dimension as in a reading.
func (s *search) evidence(r *reading) (*evidence, error) {
	e := &evidence{search: s}
	n := s.dims[s.dim].Size
	x := s.try(&reading{}, n)
	if x.err != nil {
		return nil, fmt.Errorf("the model does not run at the sizes of the export: %w", x.err)
	}
	e.in, e.original = s.in[n], x.outputs
	longer := s.try(r, s.size)
	if longer.err != nil {
		return nil, longer.err
	}
	for i, y := range e.original {
		axis, z := -1, longer.outputs[i]
		for k := range y.Shape {
			if len(z.Shape) == len(y.Shape) && y.Shape[k] != z.Shape[k] {
				if axis >= 0 {
					axis = -2
					break
				}
				axis = k
			}
		}
		e.axes = append(e.axes, axis)
	}
	key := fmt.Sprint(e.axes)
	if known := s.relations[key]; known != nil {
		return known, nil
	}
	if err := e.relate(); err != nil {
		return nil, err
	}
	s.relations[key] = e
	return e, nil
}

// aligned reports whether outputs have one row for each row of the inputs.
func (e *evidence) aligned() bool {
	for i, axis := range e.axes {
		if axis < 0 || int64(e.original[i].Shape[axis]) != e.dims[e.dim].Size {
			return false
		}
	}
	return len(e.axes) > 0
}

// relate determines which relations between rows hold in the original.
func (e *evidence) relate() error {
	n := int(e.dims[e.dim].Size)
	e.causal, e.rows = true, e.aligned()
	for _, axis := range e.axes {
		e.causal = e.causal && axis >= 0
	}
	if n == 1 {
		e.causal = false
		return nil
	}
	other, err := e.inputs(2, e.exported())
	if err != nil {
		return err
	}
	run := func(in map[string]*reference.Tensor) ([]*reference.Tensor, error) {
		x := e.run(&reading{}, e.exported(), in)
		return x.outputs, x.err
	}
	for k := 0; k < n; k++ { // rows starting at k differ
		got, err := run(e.mixed(e.in, other, k))
		if err != nil {
			return err
		}
		if k == 1 {
			e.depends = !equal(e.original, got, tolerance)
		}
		if k == n-1 {
			e.tail = !equal(e.original, got, tolerance)
		}
		if k > 0 && e.causal {
			e.causal = e.agreeRows(e.original, got, 0, 0, k)
		}
		if e.rows && k > 0 { // and the rows before k differ
			got, err := run(e.mixed(other, e.in, k))
			if err != nil {
				return err
			}
			e.rows = e.agreeRows(e.original, got, k, k, n-k)
		}
	}
	if e.rows = e.rows && e.causal; !e.rows {
		return nil
	}
	got, err := run(e.rotated(e.in))
	if err != nil {
		return err
	}
	e.rows = e.agreeRows(e.original, got, 0, n-1, 1) && e.agreeRows(e.original, got, 1, 0, n-1)
	return nil
}

// mixed returns inputs with the rows before k from first and the others from second.
func (e *evidence) mixed(first, second map[string]*reference.Tensor, k int) map[string]*reference.Tensor {
	in := map[string]*reference.Tensor{}
	for name, t := range first {
		in[name] = t
	}
	for _, p := range e.dims[e.dim].places {
		a, b := first[p.input.Name], second[p.input.Name]
		n := e.dims[e.dim].rows(first)
		in[p.input.Name] = p.within(a, n, p.part(a, n, 0, k), p.part(b, n, k, n))
	}
	return in
}

// rotated returns inputs with the first row moved to the end.
func (e *evidence) rotated(in map[string]*reference.Tensor) map[string]*reference.Tensor {
	out := map[string]*reference.Tensor{}
	for name, t := range in {
		out[name] = t
	}
	for _, p := range e.dims[e.dim].places {
		t := in[p.input.Name]
		n := e.dims[e.dim].rows(in)
		out[p.input.Name] = p.within(t, n, p.part(t, n, 1, n), p.part(t, n, 0, 1))
	}
	return out
}

// window returns rows of inputs.
func (e *evidence) window(in map[string]*reference.Tensor, from, to int) map[string]*reference.Tensor {
	out := map[string]*reference.Tensor{}
	for name, t := range in {
		out[name] = t
	}
	for _, p := range e.dims[e.dim].places {
		t, n := in[p.input.Name], e.dims[e.dim].rows(in)
		out[p.input.Name] = p.within(t, n, p.part(t, n, from, to))
	}
	return out
}

// agreeRows compares count rows of outputs: want starting at row i, and got starting at row k.
func (e *evidence) agreeRows(want, got []*reference.Tensor, i, k, count int) bool {
	if len(want) != len(got) {
		return false
	}
	for o, axis := range e.axes {
		w, g := want[o], got[o]
		if axis < 0 || len(w.Shape) != len(g.Shape) || i+count > w.Shape[axis] || k+count > g.Shape[axis] {
			return false
		}
		if !near(slice(w, axis, i, i+count), slice(g, axis, k, k+count), tolerance) {
			return false
		}
	}
	return true
}

// equal compares whole outputs.
func equal(want, got []*reference.Tensor, within float64) bool {
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if !near(w, got[i], within) {
			return false
		}
	}
	return true
}

// near reports whether two tensors are equal up to a fraction of the largest magnitude.
func near(a, b *reference.Tensor, within float64) bool {
	if !slices.Equal(a.Shape, b.Shape) {
		return false
	}
	if a.I != nil || b.I != nil {
		return slices.Equal(a.I, b.I)
	}
	greatest := 0.0
	for _, x := range a.F {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			greatest = max(greatest, math.Abs(x))
		}
	}
	for i, x := range a.F {
		y := b.F[i]
		if x != y && !(math.IsNaN(x) && math.IsNaN(y)) && !(math.Abs(x-y) <= within*max(greatest, 1e-6)) {
			return false
		}
	}
	return true
}
