package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// SettleCasts removes needless casts among the nodes of the main graph and its subgraphs for which of returns true.
// CastLike becomes Cast if the type is known. A float32 computation whose result is rounded at once is done in 16 bits
// if the result is the same. A Cast to the type that a value already has is removed.
func SettleCasts(m *onnx.Model, of func(*onnx.Node) bool) error {
	facts, c := infer.Analyze(m), new(edit.Change)
	var graphs []*onnx.Graph
	m.Graph.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
	for _, g := range graphs {
		narrow := map[onnx.DataType]*narrower{}
		for _, t := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
			narrow[t] = &narrower{edit: c, to: t, of: of, facts: facts, types: map[*onnx.Value]onnx.DataType{},
				made: map[*onnx.Value]*onnx.Value{}}
		}
		nodes := slices.DeleteFunc(slices.Clone(g.Nodes), func(n *onnx.Node) bool { return !of(n) })
		for _, n := range nodes {
			if n.Input(1) != nil {
				plainCast(c, n, facts.DataType(n.Input(1)))
			}
		}
		for _, n := range nodes {
			x, y := n.Input(0), n.OutputValue(0)
			if !n.Is("Cast") || y == nil {
				continue
			}
			to, from := onnx.DataType(n.AttrInt("to", 0)), facts.DataType(x)
			var same *onnx.Value
			switch {
			case to == from:
				same = x
			case from == onnx.Float && narrow[to] != nil:
				same = narrow[to].rounded(x)
			}
			if same == nil {
				continue
			}
			c.Become(n, "Identity") // of an output; nothing else will read it
			c.SetInput(n, 0, same)
			c.Reread(y, same)
		}
		c.Drop(slices.DeleteFunc(slices.Clone(g.Nodes), func(n *onnx.Node) bool { return !of(n) })...)
		if err := c.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// plainCast turns a CastLike whose second input has type t into a Cast, unless t is unknown.
func plainCast(c *edit.Change, n *onnx.Node, t onnx.DataType) {
	if !n.Is("CastLike") || t == onnx.Undefined {
		return
	}
	c.Become(n, "Cast", onnx.IntAttr("to", int64(t)))
	c.SetInputs(n, n.Input(0))
}

// narrower finds float32 arithmetic on 16-bit numbers whose results are rounded to 16 bits, and does it in the narrow
// type. A single addition, subtraction, multiplication or division has the same result either way, because float32 has
// more than twice the digits (Figueroa, "When is double rounding innocuous?", 1995).
type narrower struct {
	edit  *edit.Change
	to    onnx.DataType
	of    func(*onnx.Node) bool
	facts *infer.Facts
	types map[*onnx.Value]onnx.DataType // of new values
	made  map[*onnx.Value]*onnx.Value   // the narrow value for each float32 value, equal to it after rounding
}

func (w *narrower) typeOf(v *onnx.Value) onnx.DataType {
	if t, isNew := w.types[v]; isNew {
		return t
	}
	return w.facts.DataType(v)
}

// rounded returns a value that holds v rounded to the narrow type, or nil if that needs a Cast.
func (w *narrower) rounded(v *onnx.Value) *onnx.Value {
	if x := w.exact(v); x != nil {
		return x
	}
	n := v.Producer
	if n == nil || !w.of(n) || !onnx.IsStandardDomain(n.Domain) {
		return nil
	}
	switch n.OpType {
	case "Add", "Sub", "Mul", "Div":
		return w.again(v, len(n.Inputs), w.exact)
	case "Concat":
		return w.again(v, len(n.Inputs), w.rounded)
	}
	return nil
}

// exact returns a value that holds v in the narrow type, or nil if v is not known to hold only numbers of that type.
func (w *narrower) exact(v *onnx.Value) *onnx.Value {
	if x := w.made[v]; x != nil {
		return x
	}
	n := v.Producer
	switch {
	case n.Is("Cast") && w.typeOf(n.Input(0)) == w.to:
		return n.Input(0)
	case n == nil || !w.of(n) || n.Is("Cast") || !n.MovesElements():
		return nil
	case n.Is("Concat"):
		return w.again(v, len(n.Inputs), w.exact)
	}
	return w.again(v, 1, w.exact)
}

// again clones the node of v with its first count inputs replaced by narrow(input), and returns the new value.
func (w *narrower) again(v *onnx.Value, count int, narrow func(*onnx.Value) *onnx.Value) *onnx.Value {
	n := v.Producer
	inputs := append([]*onnx.Value{}, n.Inputs...)
	for i := range count {
		if inputs[i] = narrow(n.Input(i)); inputs[i] == nil {
			return nil
		}
	}
	outputs := make([]*onnx.Value, len(n.Outputs))
	for i, out := range n.Outputs {
		if out != nil {
			outputs[i] = n.Graph.NewValue(out.Name + "_" + w.to.String())
			w.made[out], w.types[outputs[i]] = outputs[i], w.to
		}
	}
	made := w.edit.AddNode(n.Graph, n.OpType, inputs, outputs, n.Attributes...)
	made.Name, made.Metadata = n.Name, n.Metadata
	return w.made[v]
}
