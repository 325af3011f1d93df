package patterns

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// join makes one match of several.
type join struct {
	*site.Site
	f         *finder
	form      *form
	parts     []*Match
	functions []*onnx.Function
}

// join starts a match whose first output root computes.
func (f *finder) join(d *form, root *onnx.Node, parts ...*Match) *join {
	return &join{Site: site.New(f.view, d.op, root), f: f, form: d, parts: parts}
}

// place adds the nodes of a part's replacement except main, and returns the operands for its values. The values in
// given have operands already.
func (j *join) place(part *Match, main *onnx.Node,
	given map[*onnx.Value]*site.Operand) map[*onnx.Value]*site.Operand {
	stands := map[*onnx.Value]*site.Operand{}
	maps.Copy(stands, given)
	for i, v := range part.Replacement.Inputs {
		if stands[v] == nil {
			stands[v] = j.Input(part.Roles[part.Inputs[i]], v.Name, part.Inputs[i])
		}
	}
	g := j.Replacement
	for _, n := range part.Replacement.Nodes {
		if n == main {
			continue
		}
		inputs, outputs := make([]*onnx.Value, len(n.Inputs)), make([]*onnx.Value, len(n.Outputs))
		for i, v := range n.Inputs {
			inputs[i] = stands[v].Value()
		}
		for i, v := range n.Outputs {
			outputs[i] = g.NewValue(v.Name)
			stands[v] = j.Operand(outputs[i])
		}
		made := g.AddNode(n.OpType, inputs, outputs, n.Attributes...)
		made.Domain, made.Overload = n.Domain, n.Overload
	}
	j.functions = append(j.functions, part.Functions...)
	return stands
}

// match returns the finished match.
func (j *join) match() *Match {
	m := j.f.match(j.Site, j.form)
	m.Parts, m.Functions = j.parts, j.functions
	return m
}
