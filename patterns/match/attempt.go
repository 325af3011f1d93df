package match

import (
	"math/bits"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// An Attempt matches a pattern at a root. Matching is by continuations: every step calls k for the rest and undoes its
// bindings if the rest fails, so all branches are tried until one leads to a whole match.
type Attempt struct {
	Pattern *notation.Pattern
	Slots   []Binding    // the bindings of the names, by Pattern.Slots
	Nodes   []*onnx.Node // matched so far; may contain a node several times

	g     *View
	tags  []int8
	steps int
	// lenient is the number of failures that may be forgiven. forgiven holds them.
	lenient  int
	forgiven []*failure
	known    *knownExprs // nil if lenient is 0
}

// A Binding is the binding of a name: a value, or a captured number (float64, int64) or text (string).
type Binding struct {
	Value    *onnx.Value
	Captured any
	Form     Form // of the value
}

// Form tells how a value must be changed before the op reads it.
type Form struct {
	LastAxes int           // if more than 1, these last axes become one axis
	CastTo   onnx.DataType // the type to cast to, if any
}

// maxSteps bounds one attempt, so that a pattern with many branches cannot stall on a large graph.
const maxSteps = 20000

// NewAttempt returns an attempt that has not begun: see At.
func NewAttempt(g *View, pat *notation.Pattern) *Attempt {
	return &Attempt{g: g, Pattern: pat, Slots: make([]Binding, len(pat.Slots)), tags: make([]int8, len(pat.Tags))}
}

// At reports whether the pattern and its conditions match at root in a way that accept allows; nil allows any.
func (s *Attempt) At(root *onnx.Value, accept func() bool) bool {
	clear(s.Slots)
	clear(s.tags)
	s.Nodes, s.steps, s.forgiven = s.Nodes[:0], 0, nil
	return s.match(s.Pattern.Root(), root, func() bool { return s.holdsWhere() && (accept == nil || accept()) })
}

// Steps returns the number of steps of the last attempt.
func (s *Attempt) Steps() int { return s.steps }

// Value returns the value that is bound to a name, or nil.
func (s *Attempt) Value(name string) *onnx.Value { return s.binding(name).Value }

// Captured returns the number (float64, int64) or text that $name has captured, or nil.
func (s *Attempt) Captured(name string) any { return s.binding(name).Captured }

func (s *Attempt) binding(name string) Binding {
	if slot, ok := s.Pattern.Slots[name]; ok {
		return s.Slots[slot]
	}
	return Binding{}
}

// match matches e against v, then calls k.
func (s *Attempt) match(e notation.Expr, v *onnx.Value, k func() bool) bool {
	if s.steps++; s.steps > maxSteps {
		return false
	}
	switch e := e.(type) {
	case notation.Wildcard:
		return k()
	case *notation.Name:
		return s.matchName(e, v, k)
	case *notation.Alternatives:
		for _, b := range e.Branches {
			if !s.may(b.Expr, v) {
				continue
			}
			if b.Tag >= 0 {
				s.tags[b.Tag] = 1
			}
			if s.match(b.Expr, v, k) {
				return true
			}
			if b.Tag >= 0 {
				s.tags[b.Tag] = 0
			}
		}
		return false
	}
	if v == nil {
		return s.fail(v, e, nil, k)
	}
	switch e := e.(type) {
	case *notation.Number:
		if x, t, ok := s.g.Scalar(v); ok && holds(x, t, e.Value) {
			return k()
		}
		return s.fail(v, e, nil, k)
	case *notation.Ints:
		if is, ok := s.g.Ints(v); ok && slices.Equal(is, e.Values) {
			return k()
		}
		return s.fail(v, e, nil, k)
	case *notation.Capture:
		x, _, ok := s.g.Scalar(v)
		if !ok {
			return s.fail(v, e, nil, k)
		}
		if c := s.Slots[e.Slot].Captured; c != nil && c != x {
			return s.fail(v, e, nil, k)
		}
		return s.capture(e.Slot, x, k)
	case *notation.Call:
		return s.matchCall(e, v, k)
	}
	return false
}

func (s *Attempt) capture(slot int, x any, k func() bool) bool {
	if c := s.Slots[slot].Captured; c != nil {
		return c == x && k()
	}
	s.Slots[slot].Captured = x
	if k() {
		return true
	}
	s.Slots[slot].Captured = nil
	return false
}

func (s *Attempt) matchName(e *notation.Name, v *onnx.Value, k func() bool) bool {
	if v == nil {
		return s.fail(v, e, nil, k)
	}
	if b := s.Slots[e.Slot].Value; b != nil {
		if s.g.Same(b, v) {
			return k()
		}
		return s.fail(v, e, nil, k)
	}
	bind := func(w *onnx.Value) bool {
		s.Slots[e.Slot].Value = w
		if k() {
			return true
		}
		s.Slots[e.Slot].Value = nil
		return false
	}
	if e.Def == nil {
		return bind(s.g.Resolve(v))
	}
	if e.Output >= 0 && s.g.Resolve(v).Output != e.Output {
		return s.fail(v, e, anotherOutput, k)
	}
	return s.match(e.Def.Expr, v, func() bool { return bind(v) })
}

func (s *Attempt) matchCall(e *notation.Call, v *onnx.Value, k func() bool) bool {
	v = s.g.Resolve(v)
	if s.isView(e) {
		return s.matchBuiltin(e, v, k)
	}
	if n := v.Producer; n != nil && s.isOp(e, n, v) {
		if s.with(func() bool { return s.matchAttrs(e, n, 0, func() bool { return s.matchArgs(e, n, k) }) }, n) {
			return true
		}
	} else if !e.Optional {
		return s.fail(v, e, nil, k)
	}
	if !e.Optional {
		return false
	}
	if x, ok := e.Neutral(); ok {
		return s.capture(e.Args[1].(*notation.Capture).Slot, x, func() bool { return s.match(e.Args[0], v, k) })
	}
	return s.match(e.Args[0], v, k)
}

// isView reports whether a call names a built-in view.
func (s *Attempt) isView(e *notation.Call) bool {
	if h := s.g.index.headOf(e); h != nil {
		return h.view != nil
	}
	return s.g.index.language.views[e.Op] != nil
}

// with adds nodes to the matched ones while k runs.
func (s *Attempt) with(k func() bool, nodes ...*onnx.Node) bool {
	before := len(s.Nodes)
	s.Nodes = append(s.Nodes, nodes...)
	if k() {
		return true
	}
	s.Nodes = s.Nodes[:before]
	return false
}

func (s *Attempt) isOp(e *notation.Call, n *onnx.Node, v *onnx.Value) bool {
	if !isOpType(n, e.Op) || n.Domain != e.Domain &&
		!(onnx.IsStandardDomain(n.Domain) && onnx.IsStandardDomain(e.Domain)) {
		return false
	}
	if e.Optional && e.Op == "Cast" { // a cast to an integer loses values
		return s.g.Facts.DataType(n.Input(0)).IsFloat() && s.g.Facts.DataType(v).IsFloat()
	}
	return true
}

func (s *Attempt) matchArgs(e *notation.Call, n *onnx.Node, k func() bool) bool {
	switch {
	case len(e.Args) > 2 && notation.Associative[e.Op]:
		return s.matchNested(e, n, 1<<len(e.Args)-1, k)
	case len(e.Args) == 2 && notation.Commutative[e.Op] && len(n.Inputs) == 2 && onnx.IsStandardDomain(n.Domain):
		return s.matchPair(e.Args[0], e.Args[1], n.Inputs[0], n.Inputs[1], k)
	}
	return s.matchRest(e.Args, n, 0, k)
}

func (s *Attempt) matchPair(a, b notation.Expr, v, w *onnx.Value, k func() bool) bool {
	return s.may(a, v) && s.may(b, w) && s.match(a, v, func() bool { return s.match(b, w, k) }) ||
		v != w && s.may(a, w) && s.may(b, v) && s.match(a, w, func() bool { return s.match(b, v, k) })
}

func (s *Attempt) matchRest(args []notation.Expr, n *onnx.Node, i int, k func() bool) bool {
	if i == len(args) {
		return k()
	}
	if !s.may(args[i], n.Input(i)) {
		return false
	}
	return s.match(args[i], n.Input(i), func() bool { return s.matchRest(args, n, i+1, k) })
}

// argSet is a set of a call's arguments, a bit for each.
type argSet uint

// matchNested matches a set of at least two arguments of a product or sum against a tree of nodes of that op. It tries
// every way to split the set between the left and the right operand.
func (s *Attempt) matchNested(e *notation.Call, n *onnx.Node, args argSet, k func() bool) bool {
	if len(n.Inputs) != 2 {
		return false
	}
	for left := args & -args; left != args; left = (left - args) & args { // the next subset
		if s.steps++; s.steps > maxSteps {
			return false
		}
		right := args &^ left
		if n.Inputs[0] == n.Inputs[1] && right < left {
			continue // tried with left and right exchanged
		}
		if s.mayOperand(e, left, n.Inputs[0]) && s.mayOperand(e, right, n.Inputs[1]) &&
			s.matchOperand(e, left, n.Inputs[0], func() bool { return s.matchOperand(e, right, n.Inputs[1], k) }) {
			return true
		}
	}
	return false
}

// mayOperand is may for some arguments of a product or sum.
func (s *Attempt) mayOperand(e *notation.Call, args argSet, v *onnx.Value) bool {
	if args&(args-1) == 0 {
		return s.may(e.Args[bits.TrailingZeros(uint(args))], v)
	}
	n := Producer(s.g.Resolve(v))
	return s.lenient > 0 || n != nil && isOpType(n, e.Op)
}

func (s *Attempt) matchOperand(e *notation.Call, args argSet, v *onnx.Value, k func() bool) bool {
	if args&(args-1) == 0 { // one
		return s.match(e.Args[bits.TrailingZeros(uint(args))], v, k)
	}
	v = s.g.Resolve(v)
	if n := Producer(v); n == nil || !isOpType(n, e.Op) || !onnx.IsStandardDomain(n.Domain) {
		return s.failProduct(e, args, v, k)
	}
	return s.with(func() bool { return s.matchNested(e, v.Producer, args, k) }, v.Producer)
}

// Producer returns the node that computes v. It is nil if v is nil or has no producer.
func Producer(v *onnx.Value) *onnx.Node {
	if v == nil {
		return nil
	}
	return v.Producer
}
