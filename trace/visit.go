package trace

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Visited is a node of a run with its inputs, except constants, and its outputs.
type Visited struct {
	Site
	Inputs, Outputs []*onnx.Tensor // nil for an absent or constant one
	run             *Execution
}

// Visit runs a model on the inputs of one case and calls look for each of the sites, which must be in graph order.
// Nodes after a site have not run yet: look may replace their inputs (Replace).
func Visit(m *onnx.Model, open Open, inputs []*onnx.Tensor, sites []Site, look func(*Visited) error) error {
	var watched []*onnx.Value
	uses := map[*onnx.Value]int{}
	for _, s := range sites {
		for _, v := range valuesOf(s.Node) {
			watched = append(watched, v)
			uses[v]++
		}
	}
	e, err := Start(m, open, inputs, watched)
	if err != nil {
		return err
	}
	for _, s := range sites {
		values := valuesOf(s.Node)
		if err := e.Advance(values...); err != nil {
			return err
		}
		v := &Visited{Site: s, run: e, Inputs: e.tensors(s.Node.Inputs), Outputs: e.tensors(s.Node.Outputs)}
		if err := look(v); err != nil {
			return fmt.Errorf("node %q: %w", s.Node.Label(), err)
		}
		for _, v := range values {
			if uses[v]--; uses[v] == 0 {
				e.Drop(v)
			}
		}
	}
	return nil
}

// valuesOf lists the inputs of a node that are not constants, and its outputs.
func valuesOf(n *onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	for _, v := range n.Inputs {
		if v != nil && v.Constant() == nil {
			list = append(list, v)
		}
	}
	for _, v := range n.Outputs {
		if v != nil {
			list = append(list, v)
		}
	}
	return list
}

func (e *Execution) tensors(values []*onnx.Value) []*onnx.Tensor {
	list := make([]*onnx.Tensor, len(values))
	for i, v := range values {
		if v != nil {
			list[i] = e.values[v]
		}
	}
	return list
}

// Replace replaces the outputs of the site for the nodes after it.
func (v *Visited) Replace(outputs []*onnx.Tensor) {
	for i, t := range outputs {
		if w := v.Node.OutputValue(i); w != nil && t != nil {
			v.run.Set(w, t)
		}
	}
}

// alone returns a model of only this node, and its inputs.
func (v *Visited) alone() (*onnx.Model, []*onnx.Tensor, error) {
	var ports []onnx.Port
	var inputs []*onnx.Tensor
	have := map[*onnx.Value]bool{}
	for i, w := range v.Node.Inputs {
		if w != nil && v.Inputs[i] != nil && !have[w] {
			have[w] = true
			ports = append(ports, onnx.Port{Value: w, Type: typeOf(v.Inputs[i])})
			inputs = append(inputs, v.Inputs[i])
		}
	}
	var outputs []*onnx.Value
	for _, w := range v.Node.Outputs {
		if w != nil {
			outputs = append(outputs, w)
		}
	}
	nodes := []*onnx.Node{v.Node}
	for _, w := range v.Node.Inputs {
		if w != nil && w.Producer != nil && !have[w] { // a Constant node
			have[w] = true
			nodes = append([]*onnx.Node{w.Producer}, nodes...)
		}
	}
	m, err := v.run.model.Part(nodes, ports, outputs)
	return m, inputs, err
}

// Reference evaluates the definition of the node on its inputs, without any kernel.
func (v *Visited) Reference() ([]*onnx.Tensor, error) { return v.evaluate(reference.Options{}) }

func (v *Visited) evaluate(o reference.Options) ([]*onnx.Tensor, error) {
	m, inputs, err := v.alone()
	if err != nil {
		return nil, err
	}
	if m.Function(v.Node.Domain, v.Node.OpType, v.Node.Overload) == nil {
		return nil, errors.New("the model does not contain the definition of the op: patch the original again")
	}
	e, err := reference.New(m, o)
	if err != nil {
		return nil, err
	}
	made, err := e.RunTensors(inputs)
	if err != nil {
		return nil, err
	}
	all := make([]*onnx.Tensor, len(v.Node.Outputs))
	for i, w := range v.Node.Outputs {
		if w != nil {
			all[i], made = made[0], made[1:]
		}
	}
	return all, nil
}
