package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// builtinView is a view that text cannot say: a Go function that finds the operands of what a value is the result of.
type builtinView struct {
	args int
	// roots are the ops whose output the value may be.
	roots []string
	// find gives an operand for each argument, the attributes, and the nodes between; why not otherwise, and at which value.
	find func(g *graphView, v *onnx.Value) (*viewMatch, *viewMiss)
}

type viewMatch struct {
	operands   []block
	attributes map[string]any // int64 or string
	nodes      []*onnx.Node
}

type viewMiss struct {
	at    *onnx.Value
	why   string // empty where nothing looks like the view
	nodes []*onnx.Node
}

// builtinViews:
//
//	FirstHalf(x)           the first half of the last axis of x
//	SecondHalf(x)          the second half of it
//	Mean(x)                the mean of x over the last axis, which is kept
//	Rotation(x, cos, sin)  a rotary position embedding of x, in any layout of pairs; its attributes are those of mojo.RotaryEmbedding
//	Row(w)                 a weight for each channel of the last axis, whatever axes of one stand before it (row.go)
//
// Halves and rotations follow channels (channels.go), so that the spelling does not matter.
var builtinViews map[string]*builtinView

func init() {
	builtinViews = map[string]*builtinView{
		"FirstHalf":  {1, movingOps, func(g *graphView, v *onnx.Value) (*viewMatch, *viewMiss) { return g.halfView(v, false) }},
		"SecondHalf": {1, movingOps, func(g *graphView, v *onnx.Value) (*viewMatch, *viewMiss) { return g.halfView(v, true) }},
		"Mean":       {1, meanRoots, (*graphView).meanView},
		"Rotation":   {3, rotationRoots, (*graphView).rotationView},
		"Row":        {1, nil, (*graphView).rowView},
	}
}

// movingOps are the ops that may write a part of a tensor.
var movingOps = []string{"Slice", "Split", "Gather", "Squeeze", "Reshape"}

func (g *graphView) halfView(v *onnx.Value, second bool) (*viewMatch, *viewMiss) {
	x, t, why := g.half(v, second)
	if x == nil {
		return nil, &viewMiss{v, why, t.nodesFrom(v, nil)}
	}
	operands := []block{{x, 1}}
	return &viewMatch{operands: operands, nodes: t.nodesFrom(v, operands)}, nil
}

func (g *graphView) meanView(v *onnx.Value) (*viewMatch, *viewMiss) {
	x, nodes, why := g.meanOf(v)
	if x == nil {
		return nil, &viewMiss{v, why, nodes}
	}
	return &viewMatch{operands: []block{{x, 1}}, nodes: nodes}, nil
}

func (g *graphView) rotationView(v *onnx.Value) (*viewMatch, *viewMiss) {
	r, t, at, why := g.rotationOf(v)
	if r == nil {
		return nil, &viewMiss{at, why, t.nodesFrom(v, nil)}
	}
	interleaved := int64(0)
	if r.interleaved {
		interleaved = 1
	}
	operands := []block{r.x, r.cos, r.sin}
	return &viewMatch{operands: operands, nodes: t.nodesFrom(v, operands), attributes: map[string]any{
		"interleaved": interleaved, "rotary_dim": int64(r.rotaryDim), "rotated_side": r.rotatedSide, "output_layout": r.outputLayout,
	}}, nil
}

// matchBuiltin matches a call of a built-in view.
func (s *state) matchBuiltin(e *callExpr, v *onnx.Value, k func() bool) bool {
	m, miss := builtinViews[e.op].find(s.g, v)
	if m == nil {
		if miss.why == "" {
			return s.fail(v, e, "", k)
		}
		return s.withAll(miss.nodes, func() bool { return s.fail(miss.at, e, miss.why, k) })
	}
	return s.withAll(m.nodes, func() bool {
		return s.matchViewAttrs(e, v, m.attributes, 0, func() bool { return s.matchOperands(e, v, m.operands, 0, k) })
	})
}

func (s *state) matchViewAttrs(e *callExpr, v *onnx.Value, have map[string]any, i int, k func() bool) bool {
	if i == len(e.attrs) {
		return k()
	}
	a := e.attrs[i]
	rest := func() bool { return s.matchViewAttrs(e, v, have, i+1, k) }
	x, ok := have[a.name]
	switch {
	case !ok:
		return s.fail(v, e, "no attribute "+a.name, rest)
	case a.capture >= 0:
		return s.capture(a.capture, x, rest)
	case a.number != nil:
		n, isInt := x.(int64)
		ok = isInt && float64(n) == *a.number
	default:
		ok = a.text != nil && x == *a.text
	}
	if !ok {
		return s.fail(v, e, e.op+" with another "+a.name, rest)
	}
	return rest()
}

// matchOperands matches the arguments against the operands of v. One whose channels are several axes, or of a narrower type
// than v, is bound together with the reshape and the cast that the op needs.
func (s *state) matchOperands(e *callExpr, v *onnx.Value, operands []block, i int, k func() bool) bool {
	if i == len(operands) {
		return k()
	}
	rest := func() bool { return s.matchOperands(e, v, operands, i+1, k) }
	b, form := operands[i], operandForm{lastAxes: operands[i].axes}
	if t := s.g.facts.DataType(v); t != onnx.Undefined && t != s.g.facts.DataType(b.v) {
		form.castTo = t
	}
	name, ok := e.args[i].(*nameExpr)
	if form == (operandForm{lastAxes: 1}) || !ok || name.def != nil {
		return s.match(e.args[i], b.v, rest)
	}
	return s.match(name, b.v, func() bool {
		s.slots[name.slot].form = form
		if rest() {
			return true
		}
		s.slots[name.slot].form = operandForm{}
		return false
	})
}

// withAll adds nodes to the matched ones while k runs.
func (s *state) withAll(nodes []*onnx.Node, k func() bool) bool {
	before := len(s.nodes)
	s.nodes = append(s.nodes, nodes...)
	if k() {
		return true
	}
	s.nodes = s.nodes[:before]
	return false
}

// nodesFrom lists the nodes that make v from the operands, as far as channels were followed.
func (t *tracer) nodesFrom(v *onnx.Value, operands []block) []*onnx.Node {
	var nodes []*onnx.Node
	seen := map[*onnx.Value]bool{}
	for _, b := range operands {
		seen[b.v] = true
	}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		v = t.g.resolve(v)
		if v == nil || seen[v] || !t.reached(v) || v.Producer == nil {
			return
		}
		seen[v] = true
		if slices.Contains(nodes, v.Producer) {
			return
		}
		nodes = append(nodes, v.Producer)
		list, inputs := sequenceOf(v.Producer)
		if list != nil {
			nodes = append(nodes, list)
		}
		for _, in := range inputs {
			visit(in)
		}
	}
	visit(v)
	return nodes
}
