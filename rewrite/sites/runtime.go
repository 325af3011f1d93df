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

// A Runtime opens a model in the runtime of a target, and runs it on inputs named like the model's.
type Runtime func(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error)

// runtimeTolerance bounds the error of a runtime relative to the largest magnitude. It allows any order of sums and
// approximate activations, and detects an op with another meaning.
var runtimeTolerance = map[onnx.DataType]float64{onnx.Float: 1e-3, onnx.Double: 1e-3, onnx.Float16: 2e-2,
	onnx.BFloat16: 1e-1}

// maxRuntimeElements bounds the inputs passed to a runtime.
const maxRuntimeElements = 1 << 22

// inRuntime runs the target's nodes on a trial and compares them with the results of the matched nodes.
func (p *proof) inRuntime(trial prove.Trial, want []*reference.Tensor) error {
	t, c, given := p.Target, p.c, trial.Inputs
	g := c.Match.Replacement
	if p.Runtime == nil || t == nil ||
		slices.ContainsFunc(given, func(x *reference.Tensor) bool { return x.Len() > maxRuntimeElements }) ||
		slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return n.Domain == fused.Domain }) {
		return nil
	}
	s := &standalone{model: p.run.Model, functions: c.Functions}
	m, feeds, err := s.build(g.Nodes, g.Inputs, given, g.Outputs)
	if err != nil {
		return nil // it needs other nodes
	}
	got, err := p.Runtime(m, feeds)
	what := "its nodes do not run"
	if err == nil {
		err, what = c.nearEnough(want, got), "its nodes return other results"
	}
	if err == nil || !p.holdsAsExported(given, want) {
		return nil
	}
	return reason.New(reason.Target, nil, "target %s: %s on %s: %w", t.Name, what, trial.Name, err).
		With("target", t.Name)
}

// holdsAsExported reports whether the runtime reproduces the evaluated results of the matched nodes. It returns true
// for nodes that cannot run separately.
func (p *proof) holdsAsExported(given, want []*reference.Tensor) bool {
	c := p.c
	inputs, values := slices.Clone(c.Match.Inputs), slices.Clone(given)
	s := &standalone{model: p.run.Model, functions: p.run.Model.Functions, fixed: map[*onnx.Value]*reference.Tensor{}}
	for _, v := range c.slice.known {
		x, ok := p.w.facts.Known(v, p.w.n)
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
	got, err := p.Runtime(m, feeds)
	return err == nil && c.nearEnough(want, got) == nil
}

// nearEnough compares a runtime's results with those of the matched nodes. It ignores the order of equal scores, and
// therefore integers.
func (c *Site) nearEnough(want []*reference.Tensor, results []*onnx.Tensor) error {
	got := make([]*reference.Tensor, len(want))
	for i, w := range want {
		g, err := reference.FromONNX(results[i])
		if err != nil {
			return nil // a type that the evaluator lacks
		}
		if got[i] = g; !w.IsFloat() && g.DataType == w.DataType && slices.Equal(g.Shape, w.Shape) {
			got[i] = w
		}
	}
	how := prove.Comparison{Names: onnx.Names(c.Match.Outputs), By: "the runtime", Terse: true,
		Bound: func(output int, t onnx.DataType, magnitude float64) float64 {
			return runtimeTolerance[c.rounds(t)]*magnitude + c.allowed(output, t, magnitude)
		}}
	return how.Compare(want, got)
}

// standalone builds a model from some nodes of another one.
type standalone struct {
	model     *onnx.Model // source of the nodes, or of the nodes that they replace
	functions []*onnx.Function
	fixed     map[*onnx.Value]*reference.Tensor // values that become initializers

	made  *onnx.Model
	feeds []*onnx.Tensor
	stand map[*onnx.Value]*onnx.Value
}

// build returns a model that computes outputs from inputs, and the tensors to run it on. Constants other than floats
// become initializers, because some kernels require these when a model is opened. It returns an error if the nodes read
// anything else or have subgraphs.
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
