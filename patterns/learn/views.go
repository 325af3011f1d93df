package learn

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// The views of patterns/builtin/views.pat that a term may be written as, by one of their spellings. They also match the
// other spellings.
var (
	byOp    = map[string]string{"Sqrt": "Root", "Reciprocal": "Inverse", "Neg": "Negated", "Sigmoid": "Logistic"}
	byPower = map[float64]string{2: "Square", 3: "Cube", 0.5: "Root", -1: "Inverse", -0.5: "InverseRoot"}
)

// generalize writes a term as a view if there is one for it.
func (w *writer) generalize(t *term) {
	is := func(view string, args ...*term) { t.call, t.args = notation.Call{Op: view}, args }
	switch view := byOp[t.call.Op]; {
	case view != "":
		is(view, t.args...)
	case t.call.Op == "Pow":
		if n, ok := t.args[1].leaf.(*notation.Number); ok && byPower[n.Value] != "" {
			is(byPower[n.Value], t.args[0])
		}
	case t.call.Op == "Mul" && len(t.args) == 2 && t.args[0] == t.args[1]:
		is("Square", t.args[0])
	case t.call.Op == "Div" && len(t.args) == 2:
		if n, ok := t.args[0].leaf.(*notation.Number); ok && n.Value == 1 {
			is("Inverse", t.args[1])
		}
	case t.call.Op == "ReduceMean" && w.onLastAxis(t):
		is("Mean", t.args...)
	}
	if a := t.args; t.call.Op == "Inverse" && a[0].leaf == nil && a[0].call.Op == "Root" && w.readOnce(a[0]) {
		is("InverseRoot", a[0].args...)
	}
}

// onLastAxis reports whether a reduction is over only the last axis, and keeps it.
func (w *writer) onLastAxis(t *term) bool {
	last, keeps := false, true
	for _, a := range t.call.Attrs {
		switch a.Name {
		case "axes":
			last = slices.Equal(a.Ints, []int64{-1})
		case "keepdims":
			keeps = a.Number != nil && *a.Number == 1
		default:
			return false
		}
	}
	return last && keeps
}
