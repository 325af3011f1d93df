package prove

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Computation computes outputs from the inputs of a trial. It also returns them together with ErrOverflow.
type Computation func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error)

// Model computes the model's present outputs from its present inputs, even if some of them are removed later.
func Model(m *onnx.Model) Computation {
	inputs, outputs := slices.Clone(m.Graph.Inputs), slices.Clone(m.Graph.Outputs)
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		e, err := reference.New(m, o)
		if err != nil {
			return nil, err
		}
		given := make(map[string]*reference.Tensor, len(in))
		for i, v := range inputs {
			if in[i] != nil { // else its default
				given[v.Name] = in[i]
			}
		}
		computed, err := e.Run(given)
		if err != nil {
			return nil, err
		}
		var out []*reference.Tensor
		for _, v := range outputs {
			out = append(out, computed[v.Name])
		}
		return out, nil
	}
}

// Op computes a node of a fused op by its definition, in an opset of the standard.
func Op(opset int64, n *onnx.Node, functions ...*onnx.Function) Computation {
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		return reference.NewForOpset(opset, functions, o).Op(n, in)
	}
}

// Region computes values of a graph from others with the nodes that are between them at the time of evaluation, and
// with the functions of m.
func Region(m *onnx.Model, inputs, outputs []*onnx.Value) Computation {
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		env := make(map[*onnx.Value]*reference.Tensor, len(inputs))
		for i, v := range inputs {
			env[v] = in[i]
		}
		nodes := between(env, outputs)
		e := reference.NewForOpset(m.Opset(""), m.Functions, o)
		if _, err := e.EvalFor(nodes, env, outputs); err != nil {
			return nil, err
		}
		got := make([]*reference.Tensor, len(outputs))
		for i, v := range outputs {
			if got[i] = env[v]; got[i] == nil {
				return nil, fmt.Errorf("nothing computes %q", v.Name)
			}
		}
		return got, nil
	}
}

// between lists the nodes that outputs depend on, in evaluation order. The search stops at known values.
func between(known map[*onnx.Value]*reference.Tensor, outputs []*onnx.Value) (nodes []*onnx.Node) {
	seen := map[*onnx.Node]bool{}
	var need func(v *onnx.Value)
	need = func(v *onnx.Value) {
		if v == nil || known[v] != nil || v.Producer == nil || seen[v.Producer] {
			return
		}
		seen[v.Producer] = true
		for _, in := range v.Producer.Reads() {
			need(in)
		}
		nodes = append(nodes, v.Producer)
	}
	for _, v := range outputs {
		need(v)
	}
	return nodes
}
