package router

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// values are tensors by what they stand for in the graph.
type values = map[*onnx.Value]*reference.Tensor

// world is the one of shape inference whose shapes values have when they are run.
const world = 0

// maxElements bounds what the nodes of one run make.
const maxElements = 1 << 27

// lab runs what lies between logits and weights without roundings.
type lab struct {
	g    *match.View
	cone map[*onnx.Value]bool
	eval *reference.Evaluator
}

func newLab(g *match.View, r *Routing) *lab {
	eval := reference.NewForOpset(g.Facts.Opset(), g.Facts.Functions(),
		reference.Options{Exact: true, Spend: r.budget.SpendOrFail})
	return &lab{g, r.cone, eval}
}

// shape returns the shape that a value has when it is run.
func (l *lab) shape(v *onnx.Value) ([]int, bool) {
	dims, ok := l.g.Facts.Shape(v, world)
	return match.As[int](dims), ok
}

// run evaluates the wanted values from those given, as plan says.
func (l *lab) run(plan *plan, given values) ([]*reference.Tensor, error) {
	env := make(values, len(given)+len(plan.known)+len(plan.want))
	maps.Copy(env, plan.known)
	maps.Copy(env, given)
	if _, err := l.eval.EvalFor(plan.nodes, env, plan.want); err != nil {
		return nil, err
	}
	list := make([]*reference.Tensor, len(plan.want))
	for i, v := range plan.want {
		t := env[v]
		if t == nil {
			return nil, fmt.Errorf("%q has no value", v.Name)
		}
		var err error
		if list[i], err = t.Dense(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// plan is what a run evaluates.
type plan struct {
	want     []*onnx.Value
	nodes    []*onnx.Node // in order
	known    values       // that follow from shapes
	elements int          // that the nodes make
}

// plan lists the nodes that make the wanted values from the logits, and the constants given.
func (l *lab) plan(logits *onnx.Value, want ...*onnx.Value) (*plan, error) {
	p := &plan{want: want, known: values{}}
	made := map[*onnx.Value]bool{logits: true}
	left := MaxRouter
	var need func(v *onnx.Value) error
	need = func(v *onnx.Value) error {
		if v == nil || made[v] || v.Constant() != nil {
			return nil
		}
		if l.g.Facts.Loose(v) && !l.cone[v] {
			return fmt.Errorf("%q follows from sizes that the model leaves open", v.Name)
		}
		if t, ok := l.g.Facts.Known(v, world); ok && !l.cone[v] && !t.IsFloat() {
			p.known[v] = t
			return nil
		}
		n := v.Producer
		switch {
		case n == nil || n.Graph != l.g.Graph || l.g.IsData(v) && !l.cone[v]:
			return fmt.Errorf("%q is not computed from the logits", v.Name)
		case n.IsRandom():
			return fmt.Errorf("%q is random", v.Name)
		case left == 0:
			return fmt.Errorf("more than %d nodes", MaxRouter)
		}
		if n.Is("IsNaN") || n.Is("IsInf") {
			return fmt.Errorf("%s asks for what is no number, which no samples show", n.OpType)
		}
		left--
		for _, out := range n.Outputs {
			made[out] = true
			if shape, ok := l.shape(out); ok {
				p.elements += match.Elements(shape)
			}
		}
		if p.elements > maxElements {
			return fmt.Errorf("more than %d elements", maxElements)
		}
		for _, in := range l.g.Operands(n) {
			if err := need(in); err != nil {
				return err
			}
			if l.followsSizes(in) {
				return fmt.Errorf("%q follows from sizes that the model leaves open", in.Name)
			}
		}
		p.nodes = append(p.nodes, n)
		return nil
	}
	for _, v := range want {
		if err := need(v); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// bounds returns the numbers that nodes of a way compare the logits with. ok is false if the nodes round scores, or
// compare anything else with numbers greater than scores: that is not a router.
func (l *lab) bounds(way *plan, logits *onnx.Value) (list []float64, ok bool) {
	for _, n := range way.nodes {
		d := l.g.DecidesBy(n, func(v *onnx.Value) bool { return l.cone[v] })
		if d != nil && d.Open && rounds(l.g, n) {
			return nil, false
		}
		if d == nil || !slices.ContainsFunc(d.Bounds, func(b float64) bool { return math.Abs(b) > 1 }) {
			continue
		}
		if l.g.Resolve(d.Value) != l.g.Resolve(logits) {
			return nil, false
		}
		list = append(list, d.Bounds...)
	}
	if len(list) > maxBounds {
		return nil, false
	}
	return append(list, l.constants(way)...), true
}

// constants returns the numbers greater than scores that nodes of a way add, multiply with or cut at: beyond them, or
// powers of their quotients, logits may become something else.
func (l *lab) constants(way *plan) (list []float64) {
	for _, n := range way.nodes {
		if !combining[n.OpType] || !slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return l.cone[v] }) {
			continue
		}
		for _, v := range n.Inputs {
			if v == nil || l.cone[v] {
				continue
			}
			t, ok := l.g.Facts.Constant(v)
			if !ok || len(t.F) != 1 || len(list) == maxBounds {
				continue
			}
			if x := math.Abs(t.F[0]); x > 1 && x < greatestAsked && !slices.Contains(list, x) {
				list = append(list, x)
			}
		}
	}
	return list
}

// combining are the ops that combine logits with numbers.
var combining = map[string]bool{"Add": true, "Clip": true, "Div": true, "Max": true, "Min": true, "Mul": true,
	"Pow": true, "Sub": true}

// greatestAsked bounds the numbers that logits are asked about. Greater ones mask scores.
const greatestAsked = 1e8

// rounds reports whether a node rounds numbers. A cast to Boolean values reads a mask of zeros and ones.
func rounds(g *match.View, n *onnx.Node) bool {
	switch n.OpType {
	case "Round", "Floor", "Ceil", "Mod", "Sign":
		return true
	case "Cast":
		return g.Facts.DataType(n.OutputValue(0)) != onnx.Bool
	}
	return false
}

// maxBounds bounds the numbers that logits are compared with.
const maxBounds = 8

// followsSizes reports whether v holds numbers or conditions that are others where there are more tokens, such as
// positions are.
func (l *lab) followsSizes(v *onnx.Value) bool {
	t := l.g.Facts.DataType(v)
	if v == nil || l.cone[v] || !t.IsFloat() && t != onnx.Bool || l.g.FromConstant(v) {
		return false
	}
	_, same := l.g.Facts.Constant(v)
	_, filled := filledWith(l.g, v)
	return !same && !filled
}
