package patterns

import (
	"sort"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// build makes the Match of a finished attempt; nil when one of its outputs is written by another match already.
func (f *finder) build(s *state, root *onnx.Value) *Match {
	pat := s.pat
	m := &Match{Pattern: pat.Name, Op: pat.Target.Op, Domain: pat.Target.Domain, Root: root.Producer,
		Alike: f.view.alike, Repeats: f.view.repeats}
	for _, r := range pat.Results {
		v := s.slots[pat.slots[r]].value
		if r != pat.Results[0] {
			v = f.view.resolve(v)
		}
		if v == nil || f.written[v] {
			return nil
		}
		m.Outputs = append(m.Outputs, v)
	}
	if !f.replacement(s, m) {
		return nil
	}
	m.Nodes = f.view.inOrder(s.nodes)
	return m
}

// inOrder returns the nodes, each once, in the graph's order.
func (g *graphView) inOrder(nodes []*onnx.Node) []*onnx.Node {
	var list []*onnx.Node
	seen := map[*onnx.Node]bool{}
	for _, n := range nodes {
		if !seen[n] {
			seen[n] = true
			list = append(list, n)
		}
	}
	sort.Slice(list, func(i, j int) bool { return g.position(list[i]) < g.position(list[j]) })
	return list
}

// replacement builds the match's small graph from the target. False means that a name of the target stands for nothing in
// the branch that was taken; what the model's opset does not allow is the match's Problem.
func (f *finder) replacement(s *state, m *Match) bool {
	facts := f.view.facts
	m.Replacement = onnx.NewFunction("", "", "", facts.Opset()).Body
	b := &builder{g: m.Replacement, opset: facts.Opset(), names: map[string]operand{}, main: s.pat.Target.main,
		eval: func(e condExpr) (any, error) { return e.eval(s) }}
	b.typeOf = func(v *onnx.Value) onnx.DataType {
		return facts.Within(m.Replacement, m.Inputs, m.Functions...).DataType(v)
	}
	b.define = func(c *targetCall, inputs []*onnx.Value) (*onnx.Function, error) {
		return f.define(c.function, facts.Within(m.Replacement, m.Inputs, m.Functions...), inputs, m)
	}
	stands := map[*onnx.Value]*onnx.Value{}
	bound := true
	s.pat.Target.call.walk(func(c *targetCall) {
		for _, a := range c.args {
			n, ok := a.(*nameExpr)
			if !ok {
				continue
			}
			switch x := s.slots[n.slot]; {
			case x.value != nil:
				if stands[x.value] == nil {
					m.Inputs = append(m.Inputs, x.value)
					stands[x.value] = m.Replacement.AddInput(n.name, onnx.Type{})
				}
				b.names[n.name] = operand{value: f.formed(b, x, stands[x.value])}
			case x.captured != nil:
				b.names[n.name] = operand{literal: x.captured}
			default:
				bound = false
			}
		}
	})
	if !bound {
		return false
	}
	outs, err := b.call(s.pat.Target.call, s.pat.Results)
	switch {
	case err != nil && b.unbound:
		return false
	case err != nil:
		m.Problem, m.Replacement = err, nil
		return true
	}
	for _, v := range outs {
		m.Replacement.AddOutput(v)
	}
	m.Attributes = b.attrs
	return true
}

// formed does to an operand what its binding says.
func (f *finder) formed(b *builder, x binding, v *onnx.Value) *onnx.Value {
	if n := x.form.lastAxes; n > 1 {
		rank, _ := f.view.facts.Rank(x.value) // known, as the sizes of the axes are
		shape := make([]int64, rank-n+1)      // 0 keeps an axis
		shape[rank-n] = -1
		v = b.node("Reshape", v.Name+"_last_axis", []*onnx.Value{v, b.constant("shape", onnx.NewInt64s("", shape))})
	}
	if t := x.form.castTo; t != onnx.Undefined {
		v = b.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(t)))
	}
	return v
}

// define returns the function that a definition is at this place, one for all places of its kind.
func (f *finder) define(d *definition, facts *infer.Facts, inputs []*onnx.Value, m *Match) (*onnx.Function, error) {
	key := d.domain + "." + d.name + "." + d.overload(facts, inputs)
	fn := f.functions[key]
	if fn == nil {
		var err error
		if fn, err = d.build(facts, inputs); err != nil {
			return nil, err
		}
		f.functions[key] = fn
	}
	m.Functions = append(m.Functions, fn)
	return fn, nil
}
