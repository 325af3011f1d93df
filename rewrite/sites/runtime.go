package sites

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Runtime opens a model in the runtime that a target writes for, and runs it on inputs that have the names of the
// model's.
type Runtime func(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error)

// runtimeTolerance is how far a runtime's results may be off, as a part of the greatest magnitude: enough for any order
// of sums and for approximations of activations. It is there to tell an op that means something else.
var runtimeTolerance = map[onnx.DataType]float64{onnx.Float: 1e-3, onnx.Double: 1e-3, onnx.Float16: 2e-2,
	onnx.BFloat16: 1e-1}

// maxRuntimeElements bounds the inputs that are handed to a runtime.
const maxRuntimeElements = 1 << 22

// inRuntime runs what the target writes on inputs for which the matched nodes gave these results.
func (k *Checker) inRuntime(c *Site, w world, inputs string, given, want []*reference.Tensor) error {
	t, g := k.Target, c.Match.Replacement
	if k.Runtime == nil || t == nil ||
		slices.ContainsFunc(given, func(x *reference.Tensor) bool { return x.Len() > maxRuntimeElements }) ||
		slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return n.Domain == fused.Domain }) {
		return nil
	}
	s := &standalone{model: k.run.Model, functions: c.Functions}
	m, feeds, err := s.build(g.Nodes, g.Inputs, given, g.Outputs)
	if err != nil {
		return nil // it cannot stand alone
	}
	got, err := k.Runtime(m, feeds)
	what := "what is written does not run"
	if err == nil {
		err, what = c.nearEnough(want, got), "what is written returns something else there"
	}
	if err == nil || !k.holdsAsExported(c, w, given, want) {
		return nil
	}
	return reason.New(reason.Target, nil, "target %s: %s on %s inputs: %w", t.Name, what, inputs, err).
		With("target", t.Name)
}

// holdsAsExported reports whether the matched nodes run in the runtime and return what they are evaluated to. Nodes
// that cannot be asked alone are taken to.
func (k *Checker) holdsAsExported(c *Site, w world, given, want []*reference.Tensor) bool {
	inputs, values := slices.Clone(c.Match.Inputs), slices.Clone(given)
	s := &standalone{model: k.run.Model, functions: k.run.Model.Functions, fixed: map[*onnx.Value]*reference.Tensor{}}
	for _, v := range c.slice.known {
		x, ok := w.facts.Known(v, w.n)
		if !ok {
			return true
		}
		s.fixed[v] = x
	}
	for v, in := range c.slice.equal {
		inputs, values = append(inputs, v), append(values, given[slices.Index(c.Match.Inputs, in)])
	}
	m, feeds, err := s.build(c.slice.nodes, inputs, values, c.Match.Outputs)
	if err != nil {
		return true
	}
	got, err := k.Runtime(m, feeds)
	return err == nil && c.nearEnough(want, got) == nil
}

// nearEnough compares a runtime's results with those of the matched nodes.
func (c *Site) nearEnough(want []*reference.Tensor, got []*onnx.Tensor) error {
	for i, w := range want {
		name := c.Match.Outputs[i].Name
		g, err := reference.FromONNX(got[i])
		if err != nil {
			return nil // a type that the evaluator has not
		}
		if !slices.Equal(g.Shape, w.Shape) || g.DataType != w.DataType {
			return fmt.Errorf("output %q is %s%v instead of %s%v", name, g.DataType, g.Shape, w.DataType, w.Shape)
		}
		if !w.IsFloat() {
			continue // which of equal scores comes first is left to the runtime
		}
		t := w.DataType
		if f, ok := prove.FloatTypes[c.coarse]; ok && f.Bits < prove.FloatTypes[t].Bits {
			t = c.coarse
		}
		difference, scale := prove.Distance(w.F, g.F)
		if difference > runtimeTolerance[t]*scale+prove.AllowedULPs(t, c.terms)*prove.Spacing(t, scale) {
			return fmt.Errorf("output %q by %.3g, its greatest magnitude being %.3g", name, difference, scale)
		}
	}
	return nil
}

// standalone makes a model of some nodes of another one.
type standalone struct {
	model     *onnx.Model // that they are of, or stand for nodes of
	functions []*onnx.Function
	fixed     map[*onnx.Value]*reference.Tensor // values that become initializers

	made  *onnx.Model
	feeds []*onnx.Tensor
	stand map[*onnx.Value]*onnx.Value
}

// build makes a model that computes outputs from inputs, and the tensors to run it on. Constants that are no floats
// become initializers, as kernels ask for some of them when a model is opened. It errs where the nodes read something
// else, or have subgraphs.
func (s *standalone) build(nodes []*onnx.Node, inputs []*onnx.Value, given []*reference.Tensor,
	outputs []*onnx.Value) (*onnx.Model, []*onnx.Tensor, error) {
	s.made = onnx.New(max(s.model.IRVersion, edit.MinIRVersion), s.model.Opset(""))
	for _, o := range s.model.Opsets {
		s.made.ImportOpset(o.Domain, o.Version)
	}
	s.made.ImportOpset(fused.Domain, fused.Version)
	s.made.ImportOpset(onnx.Microsoft, 1)
	s.made.Graph.Name, s.made.Functions = "site", s.functions
	s.stand = map[*onnx.Value]*onnx.Value{}
	for i, v := range inputs {
		if err := s.input(v, given[i]); err != nil {
			return nil, nil, err
		}
	}
	for v, x := range s.fixed {
		if err := s.initializer(v, x); err != nil {
			return nil, nil, err
		}
	}
	for _, n := range nodes {
		if err := s.node(n); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range outputs {
		out := s.stand[v]
		if out == nil || out.IsInput || out.Const != nil {
			return nil, nil, fmt.Errorf("%q is not computed", v.Name)
		}
		s.made.Graph.AddOutput(out)
	}
	return s.made, s.feeds, nil
}

func (s *standalone) input(v *onnx.Value, x *reference.Tensor) error {
	if v.Constant() != nil && !x.IsFloat() {
		return s.initializer(v, x)
	}
	name := fmt.Sprintf("in%d", len(s.feeds))
	t, err := x.ToONNX(name)
	if err != nil {
		return err
	}
	typ := onnx.Type{DataType: t.DataType, HasShape: true, Dims: make([]onnx.Dim, len(t.Dims))}
	for i := range typ.Dims {
		typ.Dims[i] = onnx.Dim{Value: -1}
	}
	s.feeds = append(s.feeds, t)
	s.stand[v] = s.made.Graph.AddInput(name, typ)
	return nil
}

func (s *standalone) initializer(v *onnx.Value, x *reference.Tensor) error {
	t, err := x.ToONNX(s.made.Graph.NewValue("fixed").Name)
	if err == nil {
		s.stand[v] = s.made.Graph.AddInitializer(t)
	}
	return err
}

func (s *standalone) node(n *onnx.Node) error {
	if len(n.Subgraphs()) > 0 {
		return fmt.Errorf("node %q has a subgraph", n.Name)
	}
	in, out := make([]*onnx.Value, len(n.Inputs)), make([]*onnx.Value, len(n.Outputs))
	for i, v := range n.Inputs {
		switch {
		case v == nil:
		case s.stand[v] != nil:
			in[i] = s.stand[v]
		case v.Constant() != nil:
			s.stand[v] = s.made.Graph.AddInitializer(v.Constant().Tied(s.made.Graph.NewValue("constant").Name))
			in[i] = s.stand[v]
		default:
			return fmt.Errorf("node %q reads %q", n.Name, v.Name)
		}
	}
	for i, v := range n.Outputs {
		if v != nil {
			out[i] = s.made.Graph.NewValue("value")
			s.stand[v] = out[i]
		}
	}
	c := s.made.Graph.AddNode(n.OpType, in, out, n.Attributes...)
	c.Domain, c.Overload, c.Name = n.Domain, n.Overload, n.Name
	if c.Name == "" {
		c.Name = n.Label()
	}
	return nil
}
