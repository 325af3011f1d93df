package reference

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// scope holds the known values of a graph; a subgraph also sees those of the enclosing graphs.
type scope struct {
	values  map[*onnx.Value]*Tensor
	parent  *scope
	omitted map[*onnx.Value]bool // a function's inputs that the call omits
}

// isOmitted reports whether v is an input of the enclosing function that the call omits.
func (s *scope) isOmitted(v *onnx.Value) bool {
	for ; s != nil; s = s.parent {
		if s.omitted[v] {
			return true
		}
	}
	return false
}

func (s *scope) lookup(v *onnx.Value) *Tensor {
	for ; s != nil; s = s.parent {
		if t := s.values[v]; t != nil {
			return t
		}
	}
	return nil
}

// Run evaluates the model. Inputs have the names of the graph's; those with an initializer are optional. Values are
// released as soon as the last node that reads them has run.
func (e *Evaluator) Run(inputs map[string]*Tensor) (map[string]*Tensor, error) {
	if e.model == nil {
		return nil, fmt.Errorf("Run needs an evaluator of a model: use New")
	}
	g := e.model.Graph
	sc := &scope{values: make(map[*onnx.Value]*Tensor, len(g.Nodes))}
	if err := e.bindInputs(g, sc, inputs); err != nil {
		return nil, err
	}
	if err := e.evalFor(g.Nodes, sc, &op.Frame{Opset: e.opset, Meter: &op.Meter{}}, g.Outputs); err != nil {
		return nil, err
	}
	out := make(map[string]*Tensor, len(g.Outputs))
	for _, v := range g.Outputs {
		t, err := e.value(v, sc)
		if err != nil {
			return nil, fmt.Errorf("graph output: %w", err)
		}
		if t, err = t.Dense(); err != nil {
			return nil, fmt.Errorf("graph output %q: %w", v.Name, err)
		}
		out[v.Name] = t
	}
	return out, nil
}

func (e *Evaluator) bindInputs(g *onnx.Graph, sc *scope, inputs map[string]*Tensor) error {
	bound := 0
	for _, v := range g.Inputs {
		t, ok := inputs[v.Name]
		if !ok || t == nil {
			if v.Const == nil {
				return fmt.Errorf("input %q of the model is missing", v.Name)
			}
			continue
		}
		bound++
		if err := e.checkInput(v, t); err != nil {
			return err
		}
		sc.values[v] = t
	}
	if bound == len(inputs) {
		return nil
	}
	for name := range inputs {
		if v := g.Value(name); v == nil || sc.values[v] == nil {
			return fmt.Errorf("the model has no input %q", name)
		}
	}
	return nil
}

func (e *Evaluator) checkInput(v *onnx.Value, t *Tensor) error {
	if tensor.IsSequence(t) {
		return nil
	}
	if want := tensor.Size(t.Shape); len(t.F)+len(t.I)+len(t.S) != want {
		return fmt.Errorf("input %q has the shape %v, but %d elements", v.Name, t.Shape, len(t.F)+len(t.I)+len(t.S))
	}
	decl, ok := v.Type()
	if !ok {
		return nil
	}
	if decl.DataType != t.DataType && !(e.options.Exact && tensor.IsFloatType(decl.DataType) && t.IsFloat()) {
		return fmt.Errorf("input %q is %s, the model declares %s", v.Name, t.DataType, decl.DataType)
	}
	if !decl.HasShape {
		return nil
	}
	if len(decl.Dims) != t.Rank() {
		return fmt.Errorf("input %q has the shape %v, the model declares %d dimensions", v.Name, t.Shape,
			len(decl.Dims))
	}
	for i, d := range decl.Dims {
		if d.Value >= 0 && int(d.Value) != t.Shape[i] {
			return fmt.Errorf("input %q has the shape %v, the model declares dimension %d to be %d", v.Name, t.Shape, i,
				d.Value)
		}
	}
	return nil
}

// Eval evaluates nodes in the given order. It reads and fills env, which need not contain initializers and outputs of
// Constant nodes.
func (e *Evaluator) Eval(nodes []*onnx.Node, env map[*onnx.Value]*Tensor) error {
	if len(nodes) == 0 {
		return nil
	}
	sc := &scope{values: env}
	fr := e.frameOf(nodes[0])
	for _, n := range nodes {
		if err := e.evalNode(n, sc, fr); err != nil {
			return err
		}
	}
	return nil
}

func (e *Evaluator) evalNode(n *onnx.Node, sc *scope, fr *op.Frame) error {
	if err := fr.Meter.Step(); err != nil {
		return fmt.Errorf("%s: %w", describe(n), err)
	}
	if e.options.Override != nil {
		out, err := e.options.Override(n, &Scope{e, sc, fr})
		if err != nil {
			return fmt.Errorf("%s: %w", describe(n), err)
		}
		if out != nil {
			return e.bindOutputs(n, out, sc, fr)
		}
	}
	if len(n.Outputs) == 1 && n.Is("Constant") && n.Outputs[0] != nil {
		if t, err := e.constant(n.Outputs[0]); err == nil && t != nil {
			sc.values[n.Outputs[0]] = t
			return fr.Meter.Hold(t)
		}
	}
	in, err := e.inputs(n, sc)
	if err != nil {
		return err
	}
	if e.options.Spend != nil {
		if err := e.options.Spend(steps(n, in)); err != nil {
			return fmt.Errorf("%s: %w", describe(n), err)
		}
	}
	out, err := e.dispatch(n, in, sc, fr)
	if err != nil {
		return err
	}
	if e.options.Spend != nil {
		made := 0
		for _, t := range out {
			made += tensor.Footprint(t)
		}
		if err := e.options.Spend(made); err != nil {
			return fmt.Errorf("%s: %w", describe(n), err)
		}
	}
	if fr.Meter.Watch && e.function(n) == nil { // the nodes of a function are watched themselves
		look(fr.Meter, n, in, out)
	}
	return e.bindOutputs(n, out, sc, fr)
}

// inputs returns the values that the node reads, nil for omitted ones.
func (e *Evaluator) inputs(n *onnx.Node, sc *scope) ([]*Tensor, error) {
	in := make([]*Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		if v == nil || sc.isOmitted(v) {
			continue
		}
		var err error
		if in[i], err = e.value(v, sc); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", describe(n), i, err)
		}
	}
	return in, nil
}

// bindOutputs assigns the node's outputs their values.
func (e *Evaluator) bindOutputs(n *onnx.Node, out []*Tensor, sc *scope, fr *op.Frame) error {
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		if i >= len(out) || out[i] == nil {
			return fmt.Errorf("%s: output %d (%q) is not made by the op", describe(n), i, v.Name)
		}
		sc.values[v] = out[i]
		if err := fr.Meter.Hold(out[i]); err != nil {
			return fmt.Errorf("%s: %w", describe(n), err)
		}
	}
	return nil
}

// value finds a value in the scope or among the constants.
func (e *Evaluator) value(v *onnx.Value, sc *scope) (*Tensor, error) {
	if t := sc.lookup(v); t != nil {
		return t, nil
	}
	t, err := e.constant(v)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%q has no value", v.Name)
	}
	return t, nil
}

// evalGraph evaluates a subgraph or function body and returns its outputs. It releases the other values.
func (e *Evaluator) evalGraph(g *onnx.Graph, sc *scope, fr *op.Frame) ([]*Tensor, error) {
	live := fr.Meter.Live
	defer func() { fr.Meter.Live = live }()
	for _, n := range g.Nodes {
		if err := e.evalNode(n, sc, fr); err != nil {
			return nil, err
		}
	}
	out := make([]*Tensor, len(g.Outputs))
	for i, v := range g.Outputs {
		t, err := e.value(v, sc)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		out[i] = t
	}
	return out, nil
}

// readers returns, for each value that the nodes read (also in their subgraphs), the index of the last such node.
func readers(nodes []*onnx.Node) map[*onnx.Value]int {
	last := make(map[*onnx.Value]int, len(nodes))
	var visit func(n *onnx.Node, i int)
	visit = func(n *onnx.Node, i int) {
		for _, v := range n.Inputs {
			if v != nil {
				last[v] = i
			}
		}
		for _, s := range n.Subgraphs() {
			for _, m := range s.Nodes {
				visit(m, i)
			}
			for _, v := range s.Outputs {
				last[v] = i
			}
		}
	}
	for i, n := range nodes {
		visit(n, i)
	}
	return last
}

// body runs a subgraph on the inputs, in its own scope inside the enclosing one. It fails, as ops do, for a wrong
// number of inputs.
func (e *Evaluator) body(g *onnx.Graph, in []*Tensor, enclosing *scope, fr *op.Frame) ([]*Tensor, error) {
	sc := &scope{values: make(map[*onnx.Value]*Tensor, len(g.Nodes)+len(in)), parent: enclosing}
	for i, v := range g.Inputs {
		if i < len(in) {
			sc.values[v] = in[i]
		} else if v.Const == nil {
			tensor.Fail("the body has %d inputs, got %d", len(g.Inputs), len(in))
		}
	}
	return e.evalGraph(g, sc, fr)
}
