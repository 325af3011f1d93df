package linear

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// assigned assigns the roles of the operands, by those of a span of the same form if there was one: the layers of a
// model have spans of one form, and only the first is run.
func (s *span) assigned() bool {
	found, _ := s.known.Of(s.form(), s.budget, func() (*roles, *reason.Reason) {
		if !s.assign() {
			return nil, nil
		}
		r := s.roles
		return &r, nil
	}, func(r *roles, _ *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*roles, *reason.Reason, bool) {
		if r == nil {
			return nil, nil, true
		}
		return r.of(stands), nil, true
	})
	if found == nil {
		return false
	}
	s.roles = *found
	return s.intended == nil || s.unrounds()
}

// form is the form of the nodes between the operands and the results.
func (s *span) form() *probe.Form {
	var f *probe.Form
	f = probe.NewForm(s.g, 4*maxSpan, func(v *onnx.Value) bool {
		n := v.Producer
		switch t := v.Constant(); {
		case slices.Contains(s.given, v) || v == s.past:
			f.WriteString(" given")
		case t != nil:
			f.Elements(t)
		case n == nil || n.Graph != s.g.Graph: // the same value
			fmt.Fprintf(f, " %p", v)
		default:
			f.Unclear = f.Unclear || !s.budget.Spend(4)
			return f.Unclear
		}
		return true
	})
	fmt.Fprint(f, s.batch, s.tokens, s.worlds, s.bare)
	f.Value(s.rows)
	f.Value(s.present)
	return f
}

// of returns the roles with the values that stand for theirs.
func (r *roles) of(stands func(*onnx.Value) *onnx.Value) *roles {
	own := *r
	for _, o := range []**operand{&own.q, &own.k, &own.v, &own.decay, &own.beta, &own.out, &own.skip} {
		if *o != nil {
			is := **o
			is.Value = stands(is.Value)
			*o = &is
		}
	}
	return &own
}
