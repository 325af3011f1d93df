package fit

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The layers of a model have regions of one form. Only the first is read.

// reading reads a region, or reuses the reading of a region of the same form. own translates that reading, given a map
// of values; it returns nil if the region must be read itself.
func reading[T any](f *finder, known probe.Readings[T], r *region, read func(*region) (*T, *reason.Reason),
	own func(of *T, stands func(*onnx.Value) *onnx.Value) *T) (*T, *reason.Reason) {
	form := f.form(r)
	if !f.budget.Spend(writeSteps * len(form.Values)) {
		return nil, nil
	}
	return known.Of(form, f.budget, func() (*T, *reason.Reason) { return read(r) },
		func(of *T, why *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*T, *reason.Reason, bool) {
			if of == nil {
				return nil, why, true
			}
			found := own(of, stands)
			return found, nil, found != nil
		})
}

// form writes the form of a region.
func (f *finder) form(r *region) *probe.Form {
	var w *probe.Form
	w = probe.NewForm(f.g, 8*maxNodes, func(v *onnx.Value) bool {
		facts, n := f.g.Facts, v.Producer
		switch {
		case v.Constant() != nil:
			w.WriteString(f.contents(v))
		case slices.Contains(r.Operands, v) || n == nil || v.Graph != f.g.Graph || n.Is("Shape"):
			fmt.Fprint(w, f.isSide(v), n.Is("Cast") && facts.DataType(n.Input(0)) != onnx.Undefined, v.IsOutput())
			if n.Is("Cast") || n.Is("Add") { // these may be joined
				for _, in := range n.Inputs {
					fmt.Fprint(w, facts.DataType(in), facts.SameShape(in, v))
				}
			}
		default:
			return false
		}
		return true
	})
	w.Value(r.Result)
	return w
}

// oneByOne is the number of elements up to which all are compared.
const oneByOne = 8

var seed = maphash.MakeSeed()

// contents describes a constant in a form. All weights of one shape are alike, but numbers, vectors of
// one number, and permutations differ.
func (f *finder) contents(v *onnx.Value) string {
	if text, ok := f.texts[v]; ok {
		return text
	}
	text := "weights"
	c := v.Constant()
	if !c.DataType.IsFloat() || c.Len() <= maxSideElements {
		t, err := reference.FromONNX(c)
		switch {
		case err != nil:
			text = "unread"
		case len(t.F) == 0 || t.Len() <= oneByOne:
			text = fmt.Sprint(maphash.Comparable(seed, fmt.Sprint(t.I, t.F)))
		case !slices.ContainsFunc(t.F, func(x float64) bool { return x != t.F[0] }):
			text = fmt.Sprint("all ", t.F[0])
		case !slices.ContainsFunc(t.F, func(x float64) bool { return x != 0 && x != 1 && x != -1 }):
			text = fmt.Sprint(maphash.Comparable(seed, fmt.Sprint(t.F)))
		}
	}
	f.texts[v] = text
	return text
}
