package probe

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Form is a part of a graph as text that does not name its values. The layers of a model have parts of one form, which
// compute the same from values of their own.
type Form struct {
	strings.Builder
	Values  []*onnx.Value // in the order in which the text names them
	Unclear bool          // the text leaves something out

	g      *match.View
	most   int
	leaf   func(*onnx.Value) bool
	places map[*onnx.Value]int
}

// NewForm returns an empty form of at most so many values. leaf reports whether the form leaves out the node that
// computes a value, and writes what is to be said of the value.
func NewForm(g *match.View, most int, leaf func(v *onnx.Value) bool) *Form {
	return &Form{g: g, most: most, leaf: leaf, places: map[*onnx.Value]int{}}
}

// Value writes a value and what it is computed from, as far as that is part of the form.
func (f *Form) Value(v *onnx.Value) {
	if v == nil {
		f.WriteByte('-')
		return
	}
	if i, ok := f.places[v]; ok {
		fmt.Fprintf(f, "#%d", i)
		return
	}
	if f.Unclear = f.Unclear || len(f.Values) == f.most; f.Unclear {
		return
	}
	f.places[v] = len(f.Values)
	f.Values = append(f.Values, v)
	f.g.WriteType(f, v)
	n := v.Producer
	if f.leaf(v) {
		return
	}
	key, ok := match.AttributesKey(n)
	fmt.Fprintf(f, " %s.%s%s:%d", n.Domain, n.OpType, key, v.Output)
	if a := n.Attr("value"); n.Is("ConstantOfShape") && a != nil && a.Tensor != nil {
		f.Tensor(a.Tensor)
	} else {
		f.Unclear = f.Unclear || !ok
	}
	f.WriteByte('(')
	for _, in := range n.Inputs {
		f.Value(in)
		f.WriteByte(',')
	}
	f.WriteByte(')')
}

// maxNumbers bounds the elements of a constant whose numbers a form holds.
const maxNumbers = 1 << 16

var seed = maphash.MakeSeed()

// Tensor writes the elements of a constant.
func (f *Form) Tensor(t *onnx.Tensor) {
	if t.Len() > maxNumbers {
		f.Unclear = true
		return
	}
	elements, err := t.Bytes()
	f.Unclear = f.Unclear || err != nil
	fmt.Fprint(f, t.DataType, t.Dims, maphash.Bytes(seed, elements))
}

// Readings maps forms to what was found out about the first part of each.
type Readings[T any] map[string]*reading[T]

type reading[T any] struct {
	values []*onnx.Value
	found  *T
	why    *reason.Reason
}

// Of returns what is known of a part of the form. If another one of the form was read, own makes of that what holds for
// this one: stands maps the values of the other part to those of this one. Where own is not ok, and for a first part,
// Of calls read. A reading without steps left is not kept, and returned as nothing.
func (known Readings[T]) Of(f *Form, budget *match.Budget, read func() (*T, *reason.Reason),
	own func(found *T, why *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*T, *reason.Reason, bool),
) (*T, *reason.Reason) {
	was := known[f.String()]
	if was != nil && !f.Unclear {
		if found, why, ok := own(was.found, was.why, match.Standing(was.values, f.Values)); ok {
			return found, why
		}
	}
	found, why := read()
	if budget.Spent() { // what was not run to the end says nothing
		return nil, nil
	}
	if was == nil && !f.Unclear {
		known[f.String()] = &reading[T]{f.Values, found, why}
	}
	return found, why
}
