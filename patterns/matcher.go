package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// state is one attempt to match a pattern at a root. Matching is by continuations: every step calls k for the rest and
// undoes its bindings when the rest fails, so that all branches are tried until one leads to a whole match.
type state struct {
	g     *graphView
	pat   *Pattern
	slots []binding
	tags  []int8
	nodes []*onnx.Node // matched so far
	steps int
	// lenient is the number of failures that may pass, which forgiven then holds.
	lenient  int
	forgiven []*failure
	sizes    map[expr]int
	inner    map[expr][]*callExpr
}

// binding is what a name stands for: a value, or a captured number (float64, int64) or text (string).
type binding struct {
	value    *onnx.Value
	captured any
	form     operandForm
}

// operandForm is what has to be done to a value before the op reads it.
type operandForm struct {
	lastAxes int           // so many last axes are made one, where it is more than one
	castTo   onnx.DataType // the type it is cast to, if any
}

// maxSteps bounds one attempt, so that a pattern with many branches cannot stall on a large graph.
const maxSteps = 20000

func newState(g *graphView, pat *Pattern) *state {
	return &state{g: g, pat: pat, slots: make([]binding, len(pat.slots)), tags: make([]int8, len(pat.tags))}
}

func (s *state) reset() {
	clear(s.slots)
	clear(s.tags)
	s.nodes, s.steps, s.forgiven = s.nodes[:0], 0, nil
}

// match matches e against v, then calls k.
func (s *state) match(e expr, v *onnx.Value, k func() bool) bool {
	if s.steps++; s.steps > maxSteps {
		return false
	}
	switch e := e.(type) {
	case wildcardExpr:
		return k()
	case *nameExpr:
		return s.matchName(e, v, k)
	case *altExpr:
		for _, b := range e.branches {
			if b.tag >= 0 {
				s.tags[b.tag] = 1
			}
			if s.match(b.expr, v, k) {
				return true
			}
			if b.tag >= 0 {
				s.tags[b.tag] = 0
			}
		}
		return false
	}
	if v == nil {
		return s.fail(v, e, "", k)
	}
	switch e := e.(type) {
	case *numberExpr:
		if x, t, ok := s.g.scalar(v); ok && holds(x, t, e.value) {
			return k()
		}
		return s.fail(v, e, "", k)
	case *intsExpr:
		if is, ok := s.g.ints(v); ok && slices.Equal(is, e.values) {
			return k()
		}
		return s.fail(v, e, "", k)
	case *captureExpr:
		x, _, ok := s.g.scalar(v)
		if !ok {
			return s.fail(v, e, "", k)
		}
		if c := s.slots[e.slot].captured; c != nil && c != x {
			return s.fail(v, e, "", k)
		}
		return s.capture(e.slot, x, k)
	case *callExpr:
		return s.matchCall(e, v, k)
	}
	return false
}

func (s *state) capture(slot int, x any, k func() bool) bool {
	if c := s.slots[slot].captured; c != nil {
		return c == x && k()
	}
	s.slots[slot].captured = x
	if k() {
		return true
	}
	s.slots[slot].captured = nil
	return false
}

func (s *state) matchName(e *nameExpr, v *onnx.Value, k func() bool) bool {
	if v == nil {
		return s.fail(v, e, "", k)
	}
	if b := s.slots[e.slot].value; b != nil {
		if s.g.same(b, v) {
			return k()
		}
		return s.fail(v, e, "", k)
	}
	bind := func(w *onnx.Value) bool {
		s.slots[e.slot].value = w
		if k() {
			return true
		}
		s.slots[e.slot].value = nil
		return false
	}
	if e.def == nil {
		return bind(s.g.resolve(v))
	}
	if e.output >= 0 && s.g.resolve(v).Output != e.output {
		return s.fail(v, e, "another output", k)
	}
	return s.match(e.def.expr, v, func() bool { return bind(v) })
}

func (s *state) matchCall(e *callExpr, v *onnx.Value, k func() bool) bool {
	v = s.g.resolve(v)
	if builtinViews[e.op] != nil {
		return s.matchBuiltin(e, v, k)
	}
	if n := v.Producer; n != nil && s.isOp(e, n, v) {
		if s.with(n, func() bool { return s.matchAttrs(e, n, 0, func() bool { return s.matchArgs(e, n, k) }) }) {
			return true
		}
	} else if !e.optional {
		return s.fail(v, e, "", k)
	}
	if !e.optional {
		return false
	}
	if x, ok := e.neutral(); ok {
		return s.capture(e.args[1].(*captureExpr).slot, x, func() bool { return s.match(e.args[0], v, k) })
	}
	return s.match(e.args[0], v, k)
}

// with adds n to the matched nodes while k runs.
func (s *state) with(n *onnx.Node, k func() bool) bool {
	s.nodes = append(s.nodes, n)
	if k() {
		return true
	}
	s.nodes = s.nodes[:len(s.nodes)-1]
	return false
}

func (s *state) isOp(e *callExpr, n *onnx.Node, v *onnx.Value) bool {
	if !isOpType(n, e.op) || n.Domain != e.domain && !(onnx.IsStandardDomain(n.Domain) && onnx.IsStandardDomain(e.domain)) {
		return false
	}
	if e.optional && e.op == "Cast" { // a cast to an integer changes values for good
		return s.g.facts.DataType(n.Input(0)).IsFloat() && s.g.facts.DataType(v).IsFloat()
	}
	return true
}

func (s *state) matchArgs(e *callExpr, n *onnx.Node, k func() bool) bool {
	switch {
	case len(e.args) > 2 && associative[e.op]:
		return s.matchNested(e, n, e.args, k)
	case len(e.args) == 2 && commutative[e.op] && len(n.Inputs) == 2 && onnx.IsStandardDomain(n.Domain):
		return s.matchPair(e.args[0], e.args[1], n.Inputs[0], n.Inputs[1], k)
	}
	return s.matchRest(e.args, n, 0, k)
}

func (s *state) matchPair(a, b expr, v, w *onnx.Value, k func() bool) bool {
	return s.match(a, v, func() bool { return s.match(b, w, k) }) ||
		s.match(a, w, func() bool { return s.match(b, v, k) })
}

func (s *state) matchRest(args []expr, n *onnx.Node, i int, k func() bool) bool {
	if i == len(args) {
		return k()
	}
	return s.match(args[i], n.Input(i), func() bool { return s.matchRest(args, n, i+1, k) })
}

// matchNested matches a product or sum of three or more arguments against a tree of nodes of that op: every way to give
// some of the arguments to the left operand and the others to the right one.
func (s *state) matchNested(e *callExpr, n *onnx.Node, args []expr, k func() bool) bool {
	if len(n.Inputs) != 2 {
		return false
	}
	left, right := make([]expr, 0, len(args)), make([]expr, 0, len(args))
	for set := 1; set < 1<<len(args)-1; set++ {
		left, right = left[:0], right[:0]
		for i, a := range args {
			if set&(1<<i) != 0 {
				left = append(left, a)
			} else {
				right = append(right, a)
			}
		}
		l, r := slices.Clone(left), slices.Clone(right)
		if s.matchOperand(e, l, n.Inputs[0], func() bool { return s.matchOperand(e, r, n.Inputs[1], k) }) {
			return true
		}
	}
	return false
}

func (s *state) matchOperand(e *callExpr, args []expr, v *onnx.Value, k func() bool) bool {
	if len(args) == 1 {
		return s.match(args[0], v, k)
	}
	v = s.g.resolve(v)
	if n := producer(v); n == nil || !isOpType(n, e.op) || !onnx.IsStandardDomain(n.Domain) {
		return s.failProduct(e, args, v, k)
	}
	return s.with(v.Producer, func() bool { return s.matchNested(e, v.Producer, args, k) })
}

func producer(v *onnx.Value) *onnx.Node {
	if v == nil {
		return nil
	}
	return v.Producer
}
