package match

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// A BuiltinView is a view that text cannot express: a Go function that finds the operands that a value is computed
// from.
type BuiltinView struct {
	Args int // number of operands
	// Roots are the ops whose output the value may be. It is nil if any value may match; then a pattern cannot end with
	// the view.
	Roots []string
	// Find returns the match at v, or why there is none.
	Find func(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss)
}

// ViewMatch is a match of a built-in view.
type ViewMatch struct {
	Operands   []Block        // one for each argument
	Attributes map[string]any // int64, float64 or string
	Nodes      []*onnx.Node   // between the operands and the value
}

// ViewMiss tells why a value does not match a built-in view.
type ViewMiss struct {
	At    *onnx.Value
	Why   *reason.Reason // the difference, at the node that it names; nil if nothing resembles the view
	Nodes []*onnx.Node   // that resemble the view
}

func meanView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	x, nodes, why := g.meanOf(v)
	if x == nil {
		return nil, &ViewMiss{v, why, nodes}
	}
	return &ViewMatch{Operands: []Block{{x, 1}}, Nodes: nodes}, nil
}

// matchBuiltin matches a call of a built-in view.
func (s *Attempt) matchBuiltin(e *notation.Call, v *onnx.Value, k func() bool) bool {
	m, miss := s.g.index.language.views[e.Op].Find(s.g, v)
	if m == nil {
		if miss.Why == nil {
			return s.fail(v, e, nil, k)
		}
		return s.with(func() bool { return s.fail(miss.At, e, miss.Why, k) }, miss.Nodes...)
	}
	return s.with(func() bool {
		return s.matchViewAttrs(e, v, m.Attributes, 0, func() bool { return s.matchOperands(e, v, m.Operands, 0, k) })
	}, m.Nodes...)
}

func (s *Attempt) matchViewAttrs(e *notation.Call, v *onnx.Value, have map[string]any, i int, k func() bool) bool {
	if i == len(e.Attrs) {
		return k()
	}
	a := e.Attrs[i]
	rest := func() bool { return s.matchViewAttrs(e, v, have, i+1, k) }
	x, ok := have[a.Name]
	switch {
	case !ok:
		return s.fail(v, e, reason.New("", nil, "no attribute %s", a.Name), rest)
	case a.Capture >= 0:
		return s.capture(a.Capture, x, rest)
	case a.Number != nil:
		n, isInt := x.(int64)
		f, isFloat := x.(float64)
		ok = isInt && float64(n) == *a.Number || isFloat && holds(f, onnx.Float, *a.Number)
	default:
		ok = a.Text != nil && x == *a.Text
	}
	if !ok {
		return s.fail(v, e, reason.New("", nil, "%s with another %s", e.Op, a.Name), rest)
	}
	return rest()
}

// matchOperands matches the arguments against the operands of v. An operand whose channels are several axes, or whose
// type is narrower than v's, is bound with the reshape and the cast that the op needs.
func (s *Attempt) matchOperands(e *notation.Call, v *onnx.Value, operands []Block, i int, k func() bool) bool {
	if i == len(operands) {
		return k()
	}
	rest := func() bool { return s.matchOperands(e, v, operands, i+1, k) }
	b, form := operands[i], Form{LastAxes: operands[i].Axes}
	if t := s.g.Facts.DataType(v); t != onnx.Undefined && t != s.g.Facts.DataType(b.Value) {
		form.CastTo = t
	}
	name, ok := e.Args[i].(*notation.Name)
	if form == (Form{LastAxes: 1}) || !ok || name.Def != nil {
		return s.match(e.Args[i], b.Value, rest)
	}
	return s.match(name, b.Value, func() bool {
		s.Slots[name.Slot].Form = form
		if rest() {
			return true
		}
		s.Slots[name.Slot].Form = Form{}
		return false
	})
}
