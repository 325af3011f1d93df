package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// MinIRVersion is the first IR version with function overloads and metadata on nodes. Models with fused ops need it.
const MinIRVersion = 10

// plainInitializersIR is the first IR version in which initializers need not be inputs, and in which callers may
// override initializers that are. Before it, every initializer had to be listed, and onnxruntime treats all of them as
// constants.
const plainInitializersIR = 4

func (c *Change) keepModel(m *onnx.Model) {
	c.keep(m, func() func() {
		version, opsets, functions := m.IRVersion, slices.Clone(m.Opsets), slices.Clone(m.Functions)
		return func() { m.IRVersion, m.Opsets, m.Functions = version, opsets, functions }
	})
}

func (c *Change) keepFunction(f *onnx.Function) {
	c.keep(f, func() func() {
		opsets := slices.Clone(f.Opsets)
		return func() { f.Opsets = opsets }
	})
}

// AddFunction adds a definition to a model unless the model has it.
func (c *Change) AddFunction(m *onnx.Model, f *onnx.Function) {
	if m.Function(f.Domain, f.Name, f.Overload) == nil {
		c.keepModel(m)
		m.Functions = append(m.Functions, f)
	}
}

// DropDefinitions removes the definitions of a fused op that nothing calls any more.
func (c *Change) DropDefinitions(m *onnx.Model, op string) {
	called := map[string]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			called[n.Domain+"."+n.OpType+"."+n.Overload] = true
		}
	}
	c.keepModel(m)
	m.Functions = slices.DeleteFunc(m.Functions, func(f *onnx.Function) bool {
		return f.Domain == fused.Domain && f.Name == op && !called[FunctionName(f)]
	})
}

// FunctionName returns the full name of a definition: the domain, name and overload in its calls.
func FunctionName(f *onnx.Function) string { return f.Domain + "." + f.Name + "." + f.Overload }

// ImportOpset makes a model import at least this version of a domain. The function f that contains the nodes imports
// the model's version; f is nil for the main graph.
func (c *Change) ImportOpset(m *onnx.Model, f *onnx.Function, domain string, version int64) {
	c.keepModel(m)
	m.ImportOpset(domain, version)
	if f != nil && f.Opset(domain) == 0 {
		c.keepFunction(f)
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: domain, Version: m.Opset(domain)})
	}
}

// SetOpset makes a model and its functions import this version of the standard's opset.
func (c *Change) SetOpset(m *onnx.Model, version int64) {
	set := func(imports []onnx.Opset) {
		for i := range imports {
			if onnx.IsStandardDomain(imports[i].Domain) {
				imports[i].Version = version
			}
		}
	}
	c.keepModel(m)
	set(m.Opsets)
	for _, f := range m.Functions {
		c.keepFunction(f)
		set(f.Opsets)
	}
}

// Uses reports whether a graph or one of its subgraphs has nodes of a domain.
func Uses(g *onnx.Graph, domain string) (uses bool) {
	g.Walk(func(g *onnx.Graph) {
		uses = uses || slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return n.Domain == domain })
	})
	return uses
}

// DropImport drops the import of a domain from a model and from functions that have no node of the domain.
func (c *Change) DropImport(m *onnx.Model, domain string) {
	without := func(list []onnx.Opset) []onnx.Opset {
		return slices.DeleteFunc(list, func(o onnx.Opset) bool { return o.Domain == domain })
	}
	used := Uses(m.Graph, domain)
	for _, f := range m.Functions {
		inside := Uses(f.Body, domain)
		if used = used || inside || f.Domain == domain; !inside {
			c.keepFunction(f)
			f.Opsets = without(f.Opsets)
		}
	}
	if !used {
		c.keepModel(m)
		m.Opsets = without(m.Opsets)
	}
}

// PlainInitializers removes the initializers of a model with an old IR version from its inputs, so that they stay
// constants when the version is raised. Undoing it requires no other undo.
func (c *Change) PlainInitializers(m *onnx.Model) {
	if m.IRVersion >= plainInitializersIR || m.Graph == nil {
		return
	}
	inputs := m.Graph.Inputs
	var listed []*onnx.Value
	kept := slices.DeleteFunc(slices.Clone(inputs), func(v *onnx.Value) bool {
		if v.Const != nil {
			listed = append(listed, v)
		}
		return v.Const != nil
	})
	set := func(inputs []*onnx.Value, isInput bool) {
		m.Graph.Inputs = inputs
		for _, v := range listed {
			v.IsInput = isInput
		}
	}
	set(kept, false)
	if c.Undoable {
		c.undo = append(c.undo, func() error { set(inputs, true); return nil })
	}
}

// RaiseIR raises the IR version of a model to a newer one. Constants stay constants.
func (c *Change) RaiseIR(m *onnx.Model, version int64) {
	if version >= plainInitializersIR {
		c.PlainInitializers(m)
	}
	c.keepModel(m)
	m.IRVersion = max(m.IRVersion, version)
}

// LowerIR lowers the IR version of a model to an older one. The model must not use features of newer versions.
func (c *Change) LowerIR(m *onnx.Model, version int64) {
	c.keepModel(m)
	m.IRVersion = min(m.IRVersion, version)
}

// InlineFunctions replaces the calls of functions by their bodies, as onnx.Model.InlineFunctions does.
func (c *Change) InlineFunctions(m *onnx.Model, keep func(*onnx.Function) bool) (calls int, err error) {
	c.keepWhole(m)
	return m.InlineFunctions(keep)
}

// InlineCalls replaces calls of functions by their bodies, as onnx.Model.InlineCalls does.
func (c *Change) InlineCalls(m *onnx.Model, take func(*onnx.Node) bool) (calls int, err error) {
	c.keepWhole(m)
	return m.InlineCalls(take)
}

// InlineBranches replaces If nodes by one of their branches, as onnx.Model.InlineBranches does.
func (c *Change) InlineBranches(m *onnx.Model, taken func(*onnx.Node) *onnx.Graph) (count int, err error) {
	c.keepWhole(m)
	return m.InlineBranches(taken)
}
