package probe

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// A Form is the text of a part of a graph, without the names of its values. The layers of a model have parts of the
// same form, which compute the same from different values.
type Form struct {
	strings.Builder
	Values  []*onnx.Value // in the order of the text
	Unclear bool          // the text omits something

	g      *match.View
	most   int
	leaf   func(*onnx.Value) bool
	places map[*onnx.Value]int
}

// NewForm returns an empty form of at most the given number of values. leaf writes the description of a value, and
// reports whether the form omits the node that computes it.
func NewForm(g *match.View, most int, leaf func(v *onnx.Value) bool) *Form {
	return &Form{g: g, most: most, leaf: leaf, places: map[*onnx.Value]int{}}
}

// Value writes a value and the values that it is computed from, as far as they belong to the form.
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

// maxNumbers bounds the elements of a constant that a form includes.
const maxNumbers = 1 << 16

var seed = maphash.MakeSeed()

// Tensor writes a hash of the elements of a constant, unless it has too many.
func (f *Form) Tensor(t *onnx.Tensor) {
	if t.Len() > maxNumbers {
		f.Unclear = true
		return
	}
	f.Elements(t)
}

// Elements writes a hash of the elements of a constant of any size.
func (f *Form) Elements(t *onnx.Tensor) {
	elements, err := t.Bytes()
	f.Unclear = f.Unclear || err != nil
	fmt.Fprint(f, t.DataType, t.Dims, maphash.Bytes(seed, elements))
}

// Readings maps forms to the reading of the first part of each.
type Readings[T any] map[string]*reading[T]

type reading[T any] struct {
	values []*onnx.Value
	found  *T
	why    *reason.Reason
}

// Of returns the reading of a part. If a part of the same form was read, own translates that reading: stands maps the
// values of the other part to the values of this part. If own is not ok, or for a first part, Of calls read. If the
// budget is spent, Of returns nil, nil and does not keep the reading.
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
	if budget.Spent() { // an unfinished run proves nothing
		return nil, nil
	}
	if was == nil && !f.Unclear {
		known[f.String()] = &reading[T]{f.Values, found, why}
	}
	return found, why
}
