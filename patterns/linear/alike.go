package linear

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
)

// reading is what the runs of a span showed. The layers of a model have spans of one form, and the first is run.
type reading struct {
	values []*onnx.Value // of the form
	roles  *roles        // nil if the span is not linear attention
}

// assigned assigns the roles of the operands, by those of a span of the same form if there was one.
func (s *span) assigned() bool {
	text, values := s.form()
	if was := s.known[text]; was != nil && text != "" {
		if was.roles == nil {
			return false
		}
		s.roles = was.roles.of(match.Standing(was.values, values))
		return true
	}
	found := s.assign()
	if text != "" && !s.budget.Spent() { // an unfinished run proves nothing
		s.known[text] = &reading{values: values}
		if found {
			r := s.roles
			s.known[text].roles = &r
		}
	}
	return found
}

// formSeed makes the hashes of constants in forms.
var formSeed = maphash.MakeSeed()

// form returns the text of the nodes between the operands and the results, and its values; "" if the text omits
// something.
func (s *span) form() (string, []*onnx.Value) {
	var f *probe.Form
	f = probe.NewForm(s.g, 4*maxSpan, func(v *onnx.Value) bool {
		n := v.Producer
		switch t := v.Constant(); {
		case slices.Contains(s.given, v) || v == s.past:
			f.WriteString(" given")
		case t != nil:
			elements, err := t.Bytes()
			f.Unclear = f.Unclear || err != nil
			fmt.Fprint(f, t.DataType, t.Dims, maphash.Bytes(formSeed, elements))
		case n == nil || n.Graph != s.g.Graph: // the same value
			fmt.Fprintf(f, " %p", v)
		default:
			return !s.budget.Spend(4)
		}
		return true
	})
	fmt.Fprint(f, s.batch, s.tokens, s.worlds)
	f.Value(s.rows)
	f.Value(s.present)
	if f.Unclear || s.budget.Spent() {
		return "", nil
	}
	return f.String(), f.Values
}

// of returns the roles with the values that stand for theirs.
func (r *roles) of(stands func(*onnx.Value) *onnx.Value) roles {
	own := *r
	for _, o := range []**operand{&own.q, &own.k, &own.v, &own.decay, &own.beta, &own.out, &own.skip} {
		if *o != nil {
			is := **o
			is.Value = stands(is.Value)
			*o = &is
		}
	}
	return own
}
