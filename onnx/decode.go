package onnx

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
)

// decoder converts messages to a Model. Every object keeps its message, for the fields that are not modeled.
type decoder struct {
	files *externalFiles
	// opaque are the tensors in fields that are not modeled: sparse tensors and training info.
	opaque []*Tensor
}

func (d *decoder) model(p *onnxpb.ModelProto) (*Model, error) {
	m := &Model{
		IRVersion:       p.GetIrVersion(),
		ProducerName:    p.GetProducerName(),
		ProducerVersion: p.GetProducerVersion(),
		Opsets:          opsets(p.OpsetImport),
		Metadata:        entries(p.MetadataProps),
		proto:           p,
		files:           d.files,
	}
	if p.Graph == nil {
		return nil, errors.New("the model has no graph")
	}
	var err error
	if m.Graph, err = d.graph(p.Graph, nil, nil); err != nil {
		return nil, err
	}
	seen := map[functionKey]bool{}
	for _, fp := range p.Functions {
		f, err := d.function(fp)
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", fp.GetDomain(), fp.GetName(), err)
		}
		if seen[f.key()] {
			return nil, fmt.Errorf("function %s.%s (overload %q) is defined twice", f.Domain, f.Name, f.Overload)
		}
		seen[f.key()] = true
		m.Functions = append(m.Functions, f)
	}
	if err := m.checkCalls(); err != nil {
		return nil, err
	}
	wire.Tensors(func(tp *onnxpb.TensorProto, _ bool) {
		if e := d.opaqueTensor(tp); err == nil && e != nil {
			err = fmt.Errorf("training info: %w", e)
		}
	}).Model(&onnxpb.ModelProto{TrainingInfo: p.TrainingInfo})
	m.opaque = d.opaque
	return m, err
}

func (d *decoder) function(p *onnxpb.FunctionProto) (*Function, error) {
	f := &Function{
		Domain: p.GetDomain(), Name: p.GetName(), Overload: p.GetOverload(),
		Attributes: p.Attribute, Opsets: opsets(p.OpsetImport), DocString: p.GetDocString(),
		Metadata: entries(p.MetadataProps), proto: p,
	}
	values := len(p.Input) + len(p.Node)
	g := newGraph(nil, newNames(values), values)
	f.Body = g
	for _, name := range p.Input {
		v := g.define(name)
		if v == nil {
			return nil, g.definedTwice(name, "input")
		}
		v.IsInput = true
		g.Inputs = append(g.Inputs, v)
	}
	for _, ap := range p.AttributeProto {
		a, err := d.attribute(ap, g)
		if err != nil {
			return nil, err
		}
		f.Defaults = append(f.Defaults, a)
	}
	if err := d.body(g, p.Node, p.ValueInfo); err != nil {
		return nil, err
	}
	for _, name := range p.Output {
		v := g.Value(name)
		if v == nil {
			return nil, fmt.Errorf("no node makes the output %q", name)
		}
		g.AddOutput(v)
	}
	return f, nil
}

// graph decodes a graph. n is nil for a graph that starts a new scope of names.
func (d *decoder) graph(p *onnxpb.GraphProto, parent *Graph, n *names) (*Graph, error) {
	values := len(p.Input) + len(p.Initializer) + len(p.Node) // most nodes have one output
	if n == nil {
		n = newNames(values)
	}
	g := newGraph(parent, n, values)
	g.Name, g.Metadata, g.proto = p.GetName(), entries(p.MetadataProps), p
	for _, ip := range p.Input {
		v := g.define(ip.GetName())
		if v == nil {
			return nil, g.definedTwice(ip.GetName(), "graph input")
		}
		v.IsInput, v.info = true, ip
		g.Inputs = append(g.Inputs, v)
	}
	for _, tp := range p.Initializer {
		t, err := d.tensor(tp)
		if err != nil {
			return nil, fmt.Errorf("initializer of graph %q: %w", g.Name, err)
		}
		v := g.values[t.Name]
		if v == nil {
			v = g.define(t.Name)
		} else if v.Const != nil {
			return nil, fmt.Errorf("initializer %q is defined twice", t.Name)
		}
		v.Const = t
		g.initializers = append(g.initializers, v)
	}
	for _, sp := range p.SparseInitializer { // opaque: it only defines a name, or is the default of an input
		if err := d.sparse(sp); err != nil {
			return nil, fmt.Errorf("initializer of graph %q: %w", g.Name, err)
		}
		name := sp.GetValues().GetName()
		if v := g.values[name]; v != nil && v.IsInput && v.Const == nil {
			continue
		}
		if g.define(name) == nil {
			return nil, g.definedTwice(name, "sparse initializer")
		}
	}
	if err := d.body(g, p.Node, p.ValueInfo); err != nil {
		return nil, err
	}
	g.declared = p.Output
	for _, op := range p.Output {
		v := g.read(op.GetName())
		if v == nil {
			return nil, fmt.Errorf("no node makes the output %q of graph %q", op.GetName(), g.Name)
		}
		g.AddOutput(v)
		if v.info == nil && v.Graph == g {
			v.info = op
		}
	}
	return g, nil
}

// define makes a value of this name in the graph, or returns nil if the name is defined: SSA allows one definition.
func (g *Graph) define(name string) *Value {
	if _, dup := g.values[name]; dup {
		return nil
	}
	v := &Value{Name: name, Graph: g}
	g.values[name] = v
	g.names.used[name] = struct{}{}
	return v
}

// definedTwice is the error for a name that define rejected.
func (g *Graph) definedTwice(name, what string) error {
	return fmt.Errorf("value %q is defined twice in graph %q, the second time as %s", name, g.Name, what)
}

func opsets(ps []*onnxpb.OperatorSetIdProto) []Opset {
	var os []Opset
	for _, p := range ps {
		os = append(os, Opset{p.GetDomain(), p.GetVersion()})
	}
	return os
}

func entries(ps []*onnxpb.StringStringEntryProto) []Entry {
	var es []Entry
	for _, p := range ps {
		es = append(es, Entry{p.GetKey(), p.GetValue()})
	}
	return es
}
