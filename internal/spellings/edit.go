package spellings

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// other lists the ops that may replace an op.
var other = map[string][]string{
	"Add": {"Mul", "Sub", "Max", "Min"}, "Mul": {"Add", "Sub", "Div", "Min"}, "Sub": {"Add", "Mul", "Div"},
	"Div": {"Mul", "Sub", "Add"}, "Max": {"Min", "Add"}, "Min": {"Max", "Mul"}, "Pow": {"Mul", "Add", "Div"},
	"Sqrt": {"Abs", "Reciprocal", "Exp"}, "Reciprocal": {"Sqrt", "Neg", "Exp"}, "Neg": {"Identity", "Abs", "Tanh"},
	"Sigmoid": {"Tanh", "Softplus", "HardSigmoid"}, "Tanh": {"Sigmoid", "Erf", "Sin"}, "Erf": {"Tanh", "Sigmoid"},
	"Exp": {"Softplus", "Abs"}, "ReduceMean": {"ReduceMax", "ReduceMin"}, "Gelu": {"Relu", "Sigmoid"}, "Cast": {"Cast"},
	"Identity": {"Neg", "Abs"},
}

// edit makes one edit somewhere in the model and describes it, or returns "" if it cannot edit the place.
func edit(m *onnx.Model, r *rand.Rand) string {
	graphs := m.Graphs()
	g := graphs[r.IntN(len(graphs))]
	if len(g.Nodes) == 0 {
		return ""
	}
	n := g.Nodes[r.IntN(len(g.Nodes))]
	what := fmt.Sprintf("%s of %q: ", n.OpType, n.Outputs[0].Name)
	switch r.IntN(6) {
	case 0: // another op
		ops := other[n.OpType]
		if len(ops) == 0 || len(n.Inputs) > 2 {
			return ""
		}
		n.OpType = ops[r.IntN(len(ops))]
		return what + "now " + n.OpType
	case 1: // operands exchanged
		if len(n.Inputs) < 2 || n.Inputs[0] == nil || n.Inputs[1] == nil || n.Inputs[0] == n.Inputs[1] {
			return ""
		}
		a, b := n.Inputs[0], n.Inputs[1]
		n.SetInput(0, b)
		n.SetInput(1, a)
		return what + "operands exchanged"
	case 2: // outputs exchanged
		if len(n.Outputs) != 2 {
			return ""
		}
		n.Outputs[0], n.Outputs[1] = n.Outputs[1], n.Outputs[0]
		n.Outputs[0].Output, n.Outputs[1].Output = 0, 1
		return what + "outputs exchanged"
	case 3:
		return editConstant(n, r, what)
	case 4:
		return rewire(m, g, n, r, what)
	}
	return intrude(m, g, n, r, what)
}

// editConstant changes a constant input or an attribute of the node.
func editConstant(n *onnx.Node, r *rand.Rand, what string) string {
	if len(n.Attributes) > 0 && r.IntN(2) == 0 && !n.Is("Constant") {
		a := *n.Attributes[r.IntN(len(n.Attributes))]
		switch {
		case a.Type == onnx.AttrInt:
			a.Int += int64(1 - 2*r.IntN(2))
		case a.Type == onnx.AttrInts && len(a.Ints) > 1:
			a.Ints = append(append([]int64{}, a.Ints[1:]...), a.Ints[0])
		case a.Type == onnx.AttrFloat:
			a.Float *= 2
		default:
			return ""
		}
		for i, b := range n.Attributes {
			if b.Name == a.Name {
				n.Attributes[i] = &a
			}
		}
		return what + "attribute " + a.Name + " changed"
	}
	i := r.IntN(len(n.Inputs) + 1)
	c := n.Input(i).Constant()
	if c == nil {
		return ""
	}
	t, err := reference.FromONNX(c)
	if err != nil || len(t.F)+len(t.I) == 0 {
		return ""
	}
	if len(t.F) > 0 {
		t.F = append([]float64{}, t.F...)
		t.F[r.IntN(len(t.F))] *= []float64{-1, 1.25, 2, 0.5}[r.IntN(4)]
	} else {
		t.I = append([]int64{}, t.I...)
		t.I[r.IntN(len(t.I))] += int64(1 - 2*r.IntN(2))
	}
	changed, err := t.ToONNX("changed")
	if err != nil {
		return ""
	}
	v := n.Graph.NewValue("changed")
	k := n.Graph.NewNode("Constant", nil, onnx.TensorAttr("value", changed))
	k.TakeOutput(0, v)
	n.Graph.InsertAt(map[*onnx.Node][]*onnx.Node{n: {k}})
	n.SetInput(i, v)
	return fmt.Sprintf("%sconstant input %d changed", what, i)
}

// rewire makes the node read another value computed before it.
func rewire(m *onnx.Model, g *onnx.Graph, n *onnx.Node, r *rand.Rand, what string) string {
	values := slices.Clone(g.Inputs)
	for _, p := range g.Nodes {
		if p == n {
			break
		}
		values = append(values, p.Outputs...)
	}
	i := r.IntN(len(n.Inputs) + 1)
	if len(values) == 0 || n.Input(i) == nil {
		return ""
	}
	facts := infer.Analyze(m)
	v := values[r.IntN(len(values))]
	if v == n.Input(i) || facts.DataType(v) != facts.DataType(n.Input(i)) {
		return ""
	}
	n.SetInput(i, v)
	return fmt.Sprintf("%sinput %d is now %q", what, i, v.Name)
}

// intrude inserts a node on an edge that changes the value.
func intrude(m *onnx.Model, g *onnx.Graph, n *onnx.Node, r *rand.Rand, what string) string {
	i := r.IntN(len(n.Inputs) + 1)
	v := n.Input(i)
	facts := infer.Analyze(m)
	if _, constant := facts.Constant(v); v == nil || constant || !facts.DataType(v).IsFloat() {
		return ""
	}
	op := []string{"Neg", "Abs", "Relu", "Sin", "Ceil", "Transpose"}[r.IntN(6)]
	k := g.NewNode(op, []*onnx.Value{v})
	w := g.NewValue("intruded")
	k.TakeOutput(0, w)
	g.InsertAt(map[*onnx.Node][]*onnx.Node{n: {k}})
	n.SetInput(i, w)
	return fmt.Sprintf("%s%s before input %d", what, op, i)
}
