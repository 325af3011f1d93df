package fit

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The layers of a model have regions of one form: the first is read, and the others are it with other weights.

// readings are those of regions of one kind, by their form.
type readings[T any] map[string]*reading[T]

// reading is what was found out about a region.
type reading[T any] struct {
	values []*onnx.Value // of its form, in the order in which they stand there
	found  *T
	why    *reason.Reason
}

// of reads a region, or takes what is known of one of the same form: own makes of that what it is of the region, whose
// values stand for those of the other one, or nil where it has to be read.
func (known readings[T]) of(f *finder, r *region, read func(*region) (*T, *reason.Reason),
	own func(of *T, stands func(*onnx.Value) *onnx.Value) *T) (*T, *reason.Reason) {
	w := &form{finder: f, region: r, places: map[*onnx.Value]int{}}
	w.value(r.result)
	if !f.budget.Spend(writeSteps * len(w.values)) {
		return nil, nil
	}
	readNow := func() (*T, *reason.Reason) {
		found, why := read(r)
		if f.budget.Spent() { // what was not run to the end says nothing
			return nil, nil
		}
		return found, why
	}
	if w.unclear {
		return readNow()
	}
	was := known[w.String()]
	if was == nil {
		was = &reading[T]{values: w.values}
		if was.found, was.why = readNow(); !f.budget.Spent() {
			known[w.String()] = was
		}
		return was.found, was.why
	}
	if was.found == nil {
		return nil, was.why
	}
	if found := own(was.found, match.Standing(was.values, w.values)); found != nil {
		return found, nil
	}
	return readNow()
}

// form writes a region as text that does not name its values.
type form struct {
	*finder
	*region
	strings.Builder
	values  []*onnx.Value
	places  map[*onnx.Value]int
	unclear bool // a node cannot be written
}

func (w *form) value(v *onnx.Value) {
	if v == nil {
		w.WriteByte('-')
		return
	}
	if i, ok := w.places[v]; ok {
		fmt.Fprintf(w, "#%d", i)
		return
	}
	w.places[v] = len(w.values)
	w.values = append(w.values, v)
	w.g.WriteType(w, v)
	facts, n := w.g.Facts, v.Producer
	switch {
	case v.Constant() != nil:
		w.WriteString(w.contents(v))
	case slices.Contains(w.operands, v) || n == nil || v.Graph != w.g.Graph || n.Is("Shape"):
		p := v.Producer
		fmt.Fprint(w, w.isSide(v), p.Is("Cast") && facts.DataType(p.Input(0)) != onnx.Undefined, v.IsOutput())
		if p.Is("Cast") || p.Is("Add") { // which may be joined
			for _, in := range p.Inputs {
				fmt.Fprint(w, facts.DataType(in), facts.SameShape(in, v))
			}
		}
	default:
		key, ok := match.AttributesKey(n)
		w.unclear = w.unclear || !ok || len(w.values) > 8*maxNodes
		fmt.Fprintf(w, " %s.%s%s:%d(", n.Domain, n.OpType, key, v.Output)
		for _, in := range n.Inputs {
			if !w.unclear {
				w.value(in)
			}
			w.WriteByte(',')
		}
		w.WriteByte(')')
	}
}

// oneByOne is how many elements are compared one by one.
const oneByOne = 8

var seed = maphash.MakeSeed()

// contents tells a constant from others by what matters to a form: weights of one shape are alike, but not numbers, nor
// vectors of ones, nor permutations.
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
