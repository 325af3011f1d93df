package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// build makes the Match of a finished attempt; nil if another match already writes one of its outputs.
func (f *finder) build(s *match.Attempt, root *onnx.Value) *Match {
	pat := s.Pattern
	m := &Match{Pattern: pat.Name, Op: pat.Target.Op, Domain: pat.Target.Domain, Root: root.Producer,
		Alike: f.view.Alike, Repeats: f.repeats}
	for _, r := range pat.Results {
		v := s.Value(r)
		if r != pat.Results[0] {
			v = f.view.Resolve(v)
		}
		if v == nil || f.written[v] {
			return nil
		}
		m.Outputs = append(m.Outputs, v)
	}
	if !f.replacement(s, m) {
		return nil
	}
	m.Nodes = inOrder(f.view, s.Nodes)
	return m
}

// inOrder returns the nodes, each once, in the graph's order.
func inOrder(g *match.View, nodes []*onnx.Node) []*onnx.Node {
	list := slices.SortedStableFunc(slices.Values(nodes),
		func(a, b *onnx.Node) int { return g.Position(a) - g.Position(b) })
	return slices.Compact(list)
}

// replacement builds the match's graph from the target. It returns false if the taken branch does not bind a name of
// the target. If the model's opset does not allow it, it sets Problem.
func (f *finder) replacement(s *match.Attempt, m *Match) bool {
	facts := f.view.Facts
	m.Replacement = onnx.NewFunction("", "", "", facts.Opset()).Body
	b := &builder{g: m.Replacement, opset: facts.Opset(), names: map[string]operand{}, main: s.Pattern.Target.Main,
		eval: func(e notation.Cond) (any, error) { return s.Eval(e) }}
	b.typeOf = func(v *onnx.Value) onnx.DataType {
		return facts.Within(m.Replacement, m.Inputs, m.Functions...).DataType(v)
	}
	b.define = func(c *notation.TargetCall, inputs []*onnx.Value) (*onnx.Function, error) {
		return f.define(c.Function, facts.Within(m.Replacement, m.Inputs, m.Functions...), inputs, m)
	}
	stands := map[*onnx.Value]*onnx.Value{}
	bound := true
	s.Pattern.Target.Call.Walk(func(c *notation.TargetCall) {
		for _, a := range c.Args {
			n, ok := a.(*notation.Name)
			if !ok {
				continue
			}
			switch x := s.Slots[n.Slot]; {
			case x.Value != nil:
				if stands[x.Value] == nil {
					m.Inputs = append(m.Inputs, x.Value)
					stands[x.Value] = m.Replacement.AddInput(n.Name, onnx.Type{})
				}
				b.names[n.Name] = operand{value: f.formed(b, x, stands[x.Value])}
			case x.Captured != nil:
				b.names[n.Name] = operand{literal: x.Captured}
			default:
				bound = false
			}
		}
	})
	if !bound {
		return false
	}
	outs, err := b.call(s.Pattern.Target.Call, s.Pattern.Results)
	switch {
	case err != nil && b.unbound:
		return false
	case err != nil:
		m.Problem, m.Replacement = err, nil
		return true
	}
	m.setRoles(s)
	for _, v := range outs {
		m.Replacement.AddOutput(v)
	}
	m.Attributes = b.attrs
	return true
}

// formed applies the form of a binding to an operand.
func (f *finder) formed(b *builder, x match.Binding, v *onnx.Value) *onnx.Value {
	if n := x.Form.LastAxes; n > 1 {
		rank, _ := f.view.Facts.Rank(x.Value) // known, as the sizes of the axes are
		shape := make([]int64, rank-n+1)      // 0 keeps an axis
		shape[rank-n] = -1
		v = b.node("Reshape", v.Name+"_last_axis", []*onnx.Value{v, b.constant("shape", onnx.NewInt64s("", shape))})
	}
	if t := x.Form.CastTo; t != onnx.Undefined {
		v = b.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(t)))
	}
	return v
}

// define returns the function of a definition for these inputs, which all equal calls share.
func (f *finder) define(d *notation.Definition, facts *infer.Facts, inputs []*onnx.Value,
	m *Match) (*onnx.Function, error) {
	key := d.Domain + "." + d.Name + "." + overload(d, facts, inputs)
	fn := f.functions[key]
	if fn == nil {
		var err error
		if fn, err = build(d, facts, inputs); err != nil {
			return nil, err
		}
		f.functions[key] = fn
	}
	m.Functions = append(m.Functions, fn)
	return fn, nil
}

// setRoles sets the roles of the values that a pattern's target passes to its main op.
func (m *Match) setRoles(s *match.Attempt) {
	call := s.Pattern.Target.Main
	op := fused.Lookup(call.Op)
	if call.Domain != fused.Domain || op == nil {
		return
	}
	for i, p := range op.Inputs {
		if p.Role != fused.NoRole && i < len(call.Args) {
			m.setRoleOf(s, call.Args[i], p.Role)
		}
	}
}

// setRoleOf sets the role of the values of an operand: the first arguments of calls, or all arguments of a Concat.
func (m *Match) setRoleOf(s *match.Attempt, e notation.Expr, what fused.Role) {
	switch e := e.(type) {
	case *notation.Name:
		if v := s.Slots[e.Slot].Value; v != nil {
			m.Roles.Set(v, what)
		}
	case *notation.TargetCall:
		if what == fused.RoleWeights && e.Op == "GatherElements" {
			what = fused.RoleGates
		}
		for i, a := range e.Args {
			if i == 0 || e.Op == "Concat" {
				m.setRoleOf(s, a, what)
			}
		}
	}
}
