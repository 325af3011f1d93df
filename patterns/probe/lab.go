package probe

import (
	"fmt"
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Values are tensors by what they stand for in a graph.
type Values = map[*onnx.Value]*reference.Tensor

// Lab runs parts of one graph on tensors of one's choice, without roundings.
type Lab struct {
	g        *match.View
	maxNodes int
	eval     *reference.Evaluator
}

// NewLab returns a lab that evaluates so many nodes at most in one run. What runs take is spent from a budget.
func NewLab(g *match.View, maxNodes int, budget *match.Budget) Lab {
	exact := reference.Options{Exact: true, Spend: budget.SpendOrFail}
	return Lab{g, maxNodes, reference.NewForOpset(g.Facts.Opset(), g.Facts.Functions(), exact)}
}

// MissingError says that a value was not given.
type MissingError struct{ Value *onnx.Value }

func (e *MissingError) Error() string { return fmt.Sprintf("%q is not given", e.Value.Name) }

// Run evaluates the graph for the wanted values from those given, and returns them. What a value is besides, such as a
// shape, known says: nil for one that is to be computed. May, if it is given, says which nodes may not be evaluated.
// env is not changed.
func (l Lab) Run(env Values, known func(*onnx.Value) *reference.Tensor, may func(*onnx.Node) error,
	want ...*onnx.Value) ([]*reference.Tensor, error) {
	r, err := l.plan(env, known, want)
	if err != nil {
		return nil, err
	}
	for _, n := range r.nodes {
		if may == nil {
			break
		}
		if err := may(n); err != nil {
			return nil, err
		}
	}
	if _, err := l.eval.EvalFor(r.nodes, r.env, want); err != nil {
		return nil, err
	}
	out := make([]*reference.Tensor, len(want))
	for i, v := range want {
		if out[i] = r.env[v]; out[i] == nil { // a constant
			t, err := reference.FromONNX(v.Constant())
			if err != nil {
				return nil, err
			}
			out[i] = t
		}
	}
	return out, nil
}

// Nodes returns the nodes that Run would evaluate, in order.
func (l Lab) Nodes(env Values, known func(*onnx.Value) *reference.Tensor, want ...*onnx.Value) ([]*onnx.Node, error) {
	r, err := l.plan(env, known, want)
	if err != nil {
		return nil, err
	}
	return r.nodes, nil
}

func (l Lab) plan(env Values, known func(*onnx.Value) *reference.Tensor, want []*onnx.Value) (*run, error) {
	r := &run{Lab: l, known: known, env: make(Values, len(env)+16), made: map[*onnx.Node]bool{}}
	maps.Copy(r.env, env)
	for _, v := range want {
		if err := r.need(v); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// run is one evaluation.
type run struct {
	Lab
	known func(*onnx.Value) *reference.Tensor
	env   Values
	nodes []*onnx.Node
	made  map[*onnx.Node]bool
}

// need adds the nodes that make v, in order.
func (r *run) need(v *onnx.Value) error {
	if v == nil || r.env[v] != nil || v.Constant() != nil || r.made[v.Producer] {
		return nil
	}
	if t := r.known(v); t != nil {
		r.env[v] = t
		return nil
	}
	n := v.Producer
	switch {
	case n == nil || n.Graph != r.g.Graph:
		return &MissingError{v}
	case len(r.made) > r.maxNodes:
		return fmt.Errorf("more than %d nodes", r.maxNodes)
	}
	r.made[n] = true
	for _, in := range r.g.Operands(n) {
		if err := r.need(in); err != nil {
			return err
		}
	}
	r.nodes = append(r.nodes, n)
	return nil
}
