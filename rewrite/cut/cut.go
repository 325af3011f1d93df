// Package cut extracts parts of a model, so that they can be run and compared separately.
package cut

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A Part is a part of a model's main graph that can run separately.
type Part struct {
	Nodes   []*onnx.Node // in graph order
	Inputs  []onnx.Port  // their operands from the rest, including inputs of the model
	Outputs []*onnx.Value

	core   []*onnx.Node // requested nodes, and nodes between them
	cutter *Cutter
}

// Model returns the part as a model. It is valid until the whole model is closed or changed.
func (c *Part) Model() (*onnx.Model, error) {
	part, err := c.cutter.model.Part(c.Nodes, c.Inputs, c.Outputs)
	if err != nil {
		return nil, err
	}
	for i, v := range part.Graph.Outputs {
		if _, declared := v.Type(); declared {
			continue
		}
		t, known := c.cutter.facts.Type(c.Outputs[i])
		if !known {
			return nil, fmt.Errorf("the type of %q is not known", v.Name)
		}
		v.SetType(t)
	}
	return part, nil
}

// Whole returns a model that computes the inputs and outputs of the part as its outputs, by the nodes of the whole
// model.
func (c *Part) Whole() (*onnx.Model, error) {
	var values []*onnx.Value
	for _, p := range c.Inputs {
		if !p.Value.IsInput {
			values = append(values, p.Value)
		}
	}
	whole, err := c.cutter.Between(nil, append(values, c.Outputs...))
	if err != nil {
		return nil, err
	}
	return whole.Model()
}

// A Cutter cuts parts out of a model. Values that depend only on constants and shapes are included in a part, so that
// patterns find the same as in the whole model.
type Cutter struct {
	model  *onnx.Model
	facts  *infer.Facts
	varies map[*onnx.Value]bool // values that depend on the inputs of the model
}

// New analyzes a model, which must not change afterwards.
func New(m *onnx.Model) *Cutter {
	c := &Cutter{m, infer.Analyze(m), map[*onnx.Value]bool{}}
	for _, v := range m.Graph.Inputs {
		c.varies[v] = !v.IsConstant()
	}
	for _, n := range m.Graph.Nodes {
		varies := n.IsRandom() || slices.ContainsFunc(n.Reads(), func(v *onnx.Value) bool { return c.varies[v] })
		for _, v := range n.Outputs {
			c.varies[v] = varies
		}
	}
	return c
}

// isData reports whether a value depends on the elements of the model's inputs, not only on their shapes.
func (c *Cutter) isData(v *onnx.Value) bool {
	if v == nil || !c.varies[v] {
		return false
	}
	_, known := c.facts.Known(v, 0)
	return !known
}

// Around cuts out nodes of the main graph, with the nodes between them.
func (c *Cutter) Around(nodes ...*onnx.Node) (*Part, error) {
	var made, read []*onnx.Value
	for _, n := range nodes {
		if n.Graph != c.model.Graph {
			return nil, fmt.Errorf("node %q is in a subgraph: cut out the node of the main graph that contains it",
				n.Label())
		}
		made, read = append(made, n.Outputs...), append(read, n.Reads()...)
	}
	take := c.between(made, read)
	for _, n := range nodes {
		take[n] = true
	}
	return c.cut(take, nil)
}

// Sites cuts out the nodes of matches, with the nodes between them.
func (c *Cutter) Sites(matches ...*patterns.Match) (*Part, error) {
	var nodes []*onnx.Node
	along := map[*onnx.Node]bool{}
	for _, m := range matches {
		nodes = append(nodes, m.Nodes...)
		maps.Copy(along, c.computing(m.Inputs, m.Outputs))
	}
	cut, err := c.Around(nodes...)
	if err != nil {
		return nil, err
	}
	return c.cut(onnx.SetOf(slices.Values(cut.core)), along)
}

// Between cuts out the nodes that compute values of the main graph, from others or from the model's inputs.
func (c *Cutter) Between(from, to []*onnx.Value) (*Part, error) {
	take := c.computing(from, to)
	if len(take) == 0 {
		return nil, errors.New("no node computes these outputs from these inputs")
	}
	cut, err := c.cut(take, nil)
	if err != nil {
		return nil, err
	}
	for _, v := range from {
		if !slices.ContainsFunc(cut.Inputs, func(p onnx.Port) bool { return p.Value == v }) {
			return nil, fmt.Errorf("no requested value is computed from %q", v.Name)
		}
	}
	cut.Outputs = to // other values read elsewhere were not requested
	return cut, nil
}

// computing returns the nodes of the main graph that compute values from others.
func (c *Cutter) computing(from, to []*onnx.Value) map[*onnx.Node]bool {
	given := onnx.SetOf(slices.Values(from))
	nodes := map[*onnx.Node]bool{}
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if given[v] || v.Producer == nil {
			return nil
		}
		return v.Producer.Reads()
	}, to...) {
		if n := v.Producer; n != nil && n.Graph == c.model.Graph && !given[v] {
			nodes[n] = true
		}
	}
	return nodes
}

// between returns the nodes on paths from some values to others.
func (c *Cutter) between(from, to []*onnx.Value) map[*onnx.Node]bool {
	reached := onnx.SetOf(slices.Values(from))
	for _, n := range c.model.Graph.Nodes {
		if slices.ContainsFunc(n.Reads(), func(v *onnx.Value) bool { return reached[v] }) {
			for _, v := range n.Outputs {
				reached[v] = v != nil
			}
		}
	}
	nodes := map[*onnx.Node]bool{}
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if v.Producer == nil || !reached[v] {
			return nil
		}
		return v.Producer.Reads()
	}, to...) {
		if n := v.Producer; n != nil && reached[v] && slices.ContainsFunc(n.Reads(), func(v *onnx.Value) bool {
			return reached[v]
		}) {
			nodes[n] = true
		}
	}
	return nodes
}

// cut adds the nodes that compute constants and shapes. Nodes in along, for example of a mask that other layers read
// too, are added if needed; the rest of the model does not read their results.
func (c *Cutter) cut(take, along map[*onnx.Node]bool) (*Part, error) {
	cut := &Part{cutter: c}
	needed := map[*onnx.Value]bool{}
	part := maps.Clone(take)
	var read []*onnx.Value
	for _, n := range c.model.Graph.Nodes {
		if take[n] {
			cut.core = append(cut.core, n)
			read = append(read, n.Reads()...)
		}
	}
	for len(read) > 0 {
		v := read[0]
		read = read[1:]
		if needed[v] || v.IsConstant() {
			continue
		}
		needed[v] = true
		n := v.Producer
		if n == nil || c.isData(v) && !take[n] && !along[n] {
			continue
		}
		if !part[n] {
			part[n] = true
			read = append(read, n.Reads()...)
		}
	}
	made := map[*onnx.Value]bool{}
	for _, n := range c.model.Graph.Nodes {
		if !part[n] {
			continue
		}
		cut.Nodes = append(cut.Nodes, n)
		for _, v := range n.Reads() {
			if made[v] || v.IsConstant() {
				continue
			}
			t, ok := c.facts.Type(v)
			if declared, is := v.Type(); is && v.IsInput {
				t, ok = declared, true
			}
			if !ok {
				return nil, fmt.Errorf("the type of %q, which node %q reads, is not known", v.Name, n.Label())
			}
			cut.Inputs = append(cut.Inputs, onnx.Port{Value: v, Type: t})
			made[v] = true
		}
		for _, v := range n.Outputs {
			made[v] = true
		}
	}
	cut.Outputs = c.leaving(take, part)
	return cut, nil
}

// leaving lists the values of nodes that the rest of the model reads, or all values if it reads nothing.
func (c *Cutter) leaving(take, part map[*onnx.Node]bool) (out []*onnx.Value) {
	outside := map[*onnx.Value]bool{}
	for _, v := range c.model.Graph.Outputs {
		outside[v] = true
	}
	for _, n := range c.model.Graph.Nodes {
		if !part[n] {
			for _, v := range n.Reads() {
				outside[v] = true
			}
		}
	}
	all := []*onnx.Value{}
	for _, n := range c.model.Graph.Nodes {
		if !take[n] {
			continue
		}
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			if all = append(all, v); outside[v] {
				out = append(out, v)
			}
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}
