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
