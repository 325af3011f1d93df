package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// SettleCasts leaves no cast that is not needed among the nodes of the main graph and its subgraphs that of says yes
// to: CastLike becomes Cast where the type is known, what is computed in float32 and rounded at once is computed in 16
// bits, where that is the same, and a Cast to the type that a value has goes.
func SettleCasts(m *onnx.Model, of func(*onnx.Node) bool) error {
	facts := infer.Analyze(m)
	var graphs []*onnx.Graph
	m.Graph.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
	for _, g := range graphs {
		narrow := map[onnx.DataType]*narrower{}
		for _, t := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
			narrow[t] = &narrower{to: t, of: of, facts: facts, types: map[*onnx.Value]onnx.DataType{},
				made: map[*onnx.Value]*onnx.Value{}}
		}
		nodes := slices.DeleteFunc(slices.Clone(g.Nodes), func(n *onnx.Node) bool { return !of(n) })
		for _, n := range nodes {
			if n.Input(1) != nil {
				plainCast(n, facts.DataType(n.Input(1)))
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
			n.OpType, n.Attributes = "Identity", nil // of an output; nothing else will read it
			n.SetInput(0, same)
			for _, u := range slices.Clone(y.Uses()) {
				u.Node.SetInput(u.Index, same)
			}
		}
		dead, _ := Unread(slices.DeleteFunc(slices.Clone(g.Nodes), func(n *onnx.Node) bool { return !of(n) }))
		if err := g.RemoveNodes(dead); err != nil {
			return err
		}
		if err := g.Sort(); err != nil {
			return err
		}
	}
	return nil
}

// plainCast makes a Cast of a CastLike, whose second input has type t, unless that is not known.
func plainCast(n *onnx.Node, t onnx.DataType) {
	if !n.Is("CastLike") || t == onnx.Undefined {
		return
	}
	n.OpType = "Cast"
	n.SetInput(1, nil)
	n.Inputs = n.Inputs[:1]
	n.Attributes = []*onnx.Attribute{onnx.IntAttr("to", int64(t))}
}
