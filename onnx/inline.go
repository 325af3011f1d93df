package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

const (
	// maxInlined bounds the nodes that inlining makes, including the calls: a few functions that each call the next one
	// twice can make any number of nodes.
	maxInlined = 1 << 18
	// maxCallDepth bounds the nesting of calls and subgraphs.
	maxCallDepth = 1000
)

// InlineFunctions replaces the calls of model-local functions by their bodies, in the main graph, in subgraphs and in
// the bodies of the functions that keep selects, which stay functions (nil keeps none). It returns the number of
// replaced calls, including nested ones, and drops functions that are no longer called.
//
// Values and nodes of a body are named after the call. Metadata, doc strings of nodes and declared types stay, without
// symbolic dimensions, which differ from call to call.
//
// It returns an error if a function calls itself, if a call has more inputs or outputs than its function, if a body
// imports an operator set at another version than the model, or if inlining would make more than maxInlined nodes.
// After an error the model must not be used.
func (m *Model) InlineFunctions(keep func(*Function) bool) (calls int, err error) {
	if err := m.checkCalls(); err != nil {
		return 0, err
	}
	in := newInliner(m)
	for _, f := range m.Functions {
		if keep == nil || !keep(f) {
			in.functions[f.key()] = f
		}
	}
	return in.inline()
}

// InlineCalls replaces the calls that take selects, in the main graph, in subgraphs and in function bodies, as
// InlineFunctions does. Other nodes stay.
func (m *Model) InlineCalls(take func(*Node) bool) (calls int, err error) {
	if err := m.checkCalls(); err != nil {
		return 0, err
	}
	in := newInliner(m)
	in.take = take
	for _, f := range m.Functions {
		in.functions[f.key()] = f
	}
	return in.inline()
}

func (in *inliner) inline() (calls int, err error) {
	if len(in.functions) == 0 {
		return 0, nil
	}
	if err := in.eachRoot(in.graph); err != nil {
		return 0, fmt.Errorf("cannot inline functions: %w", err)
	}
	in.dropFunctions()
	return in.calls, nil
}

// InlineBranches replaces If nodes by the nodes of the branch that taken returns. nil keeps a node. It returns the
// number of replaced nodes.
func (m *Model) InlineBranches(taken func(*Node) *Graph) (count int, err error) {
	in := newInliner(m)
	in.taken = taken
	if err := in.eachRoot(in.graph); err != nil {
		return 0, fmt.Errorf("cannot inline branches: %w", err)
	}
	return in.calls, nil
}

// inliner replaces nodes of a model by copies of other nodes.
type inliner struct {
	model     *Model
	functions map[functionKey]*Function // to inline
	take      func(*Node) bool          // selects the calls to inline; nil: all
	taken     func(*Node) *Graph        // returns the branch that replaces an If node, or nil
	nodeNames *names
	calls     int
	made      int
	depth     int

	root     *Function // whose body is being changed; nil for the main graph
	imported map[importKey]bool
}

type importKey struct {
	function *Function
	domain   string
}

func newInliner(m *Model) *inliner {
	in := &inliner{model: m, functions: map[functionKey]*Function{}, nodeNames: newNames(0), taken: func(*Node) *Graph {
		return nil
	}}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			in.nodeNames.used[n.Name] = struct{}{}
		}
	}
	return in
}

// eachRoot calls work for the main graph and for the bodies of the remaining functions.
func (in *inliner) eachRoot(work func(*Graph) error) error {
	in.imported = map[importKey]bool{}
	called := in.model.called() // the others are dropped
	if err := work(in.model.Graph); err != nil {
		return err
	}
	for _, f := range in.model.Functions {
		if in.take == nil && in.functions[f.key()] != nil || !called[f] {
			continue
		}
		in.root, in.imported = f, map[importKey]bool{}
		if err := work(f.Body); err != nil {
			return fmt.Errorf("in function %s: %w", f.describe(), err)
		}
	}
	return nil
}

// callee returns the function to inline that the node calls, or nil.
func (in *inliner) callee(n *Node) *Function {
	if in.take != nil && !in.take(n) {
		return nil
	}
	return in.functions[keyOf(n.Domain, n.OpType, n.Overload)]
}

// graph replaces the nodes of a graph that is part of the model.
func (in *inliner) graph(g *Graph) error {
	out := make([]*Node, 0, len(g.Nodes))
	dead := map[*Node]bool{}
	here := &scope{at: g, expansion: &expansion{}}
	for _, n := range g.Nodes {
		replaced, err := in.replace(n, here, &out)
		switch {
		case err != nil:
			return fmt.Errorf("node %q (%s): %w", n.Label(), n.OpType, err)
		case replaced:
			dead[n] = true
			continue
		}
		for _, s := range n.Subgraphs() {
			if err := in.graph(s); err != nil {
				return err
			}
		}
		out = append(out, n)
	}
	if len(dead) == 0 {
		return nil
	}
	for _, n := range g.Nodes {
		if dead[n] {
			out = append(out, n) // for RemoveNodes, which ends its uses
		}
	}
	g.Nodes = out
	return g.RemoveNodes(dead)
}

// replace writes the replacement of node n in scope sc, if it has one.
func (in *inliner) replace(n *Node, sc *scope, out *[]*Node) (replaced bool, err error) {
	f, branch := in.callee(n), in.taken(n)
	if f == nil && branch == nil {
		return false, nil
	}
	in.calls++
	in.made++
	in.depth++
	defer func() { in.depth-- }()
	if in.made > maxInlined || in.depth > maxCallDepth {
		return false, in.tooMany()
	}
	x := &expansion{function: f, prefix: sc.join(n.Label()), metadata: inherit(n.Metadata, sc.metadata)}
	body := branch
	if f != nil {
		body = f.Body
		if len(n.Inputs) > len(body.Inputs) || len(n.Outputs) > len(body.Outputs) {
			return false, fmt.Errorf("call %q has %d inputs and %d outputs, but function %s has %d and %d",
				n.Label(), len(n.Inputs), len(n.Outputs), f.describe(), len(body.Inputs), len(body.Outputs))
		}
		if x.attrs, err = in.bind(f, n, sc); err != nil {
			return false, err
		}
	} else {
		x.function, x.attrs, x.prefix = sc.function, sc.attrs, sc.prefix // a branch is part of its function
	}
	if len(n.Outputs) > len(body.Outputs) {
		return false, fmt.Errorf("the node has %d outputs, but graph %q has %d", len(n.Outputs), body.Name,
			len(body.Outputs))
	}
	inner := &scope{source: body, at: sc.at, values: make(map[*Value]*Value, len(body.values)), expansion: x}
	if f == nil {
		inner.outer = sc
		in.constants(branch, inner, out)
	}
	for i, v := range body.Inputs {
		inner.values[v] = nil
		if i < len(n.Inputs) {
			inner.values[v] = sc.value(n.Inputs[i])
		}
	}
	return true, in.body(n, body, sc, inner, out)
}

// body writes the nodes of a body, whose outputs become those of n.
func (in *inliner) body(n *Node, body *Graph, sc, inner *scope, out *[]*Node) error {
	// outputs of the body that no node writes, or that repeat, and their names outside
	var passed [][2]*Value
	for i, v := range slices.Clone(n.Outputs) {
		if v == nil {
			continue
		}
		w := sc.value(v)
		formal := body.Outputs[i]
		if _, known := inner.values[formal]; known || formal.Producer == nil || formal.Graph != body {
			passed = append(passed, [2]*Value{formal, w})
			continue
		}
		inner.values[formal] = w
		if w.info == nil {
			w.info = inlinedInfo(formal, w.Name)
		}
	}
	if err := in.copyNodes(body.Nodes, inner, out); err != nil {
		return err
	}
	for _, p := range passed {
		v := inner.value(p[0])
		if v == nil {
			return fmt.Errorf("output %q is the input %q, which the call does not pass", p[1].Name, p[0].Name)
		}
		if err := in.use("", inner.function); err != nil {
			return err
		}
		id := sc.at.NewNode("Identity", []*Value{v})
		id.Name, id.Metadata = in.nodeNames.unique(inner.join("Identity")), slices.Clone(inner.metadata)
		id.TakeOutput(0, p[1])
		*out = append(*out, id)
	}
	return nil
}

// bind returns the attributes of a call of f, by name, with the defaults of omitted ones.
func (in *inliner) bind(f *Function, n *Node, sc *scope) (map[string]bound, error) {
	attrs := map[string]bound{}
	for _, a := range f.Defaults {
		attrs[a.Name] = bound{attr: a, scope: &scope{at: sc.at, expansion: &expansion{}}}
	}
	for _, a := range n.Attributes {
		b, given := sc.resolve(a)
		if !given {
			continue
		}
		_, hasDefault := attrs[a.Name]
		if ref := b.attr.RefName; ref != "" && hasDefault && in.root != nil && !in.root.hasDefault(ref) {
			return nil, fmt.Errorf("function %s passes its attribute %q on to %q of %s, which has a default "+
				"value, so its value depends on the call; inline both functions or neither",
				in.root.describe(), ref, a.Name, f.describe())
		}
		attrs[a.Name] = b
	}
	return attrs, nil
}

// use makes the current graph import the domain as function f does.
func (in *inliner) use(domain string, f *Function) error {
	if f == nil || in.imported[importKey{f, domain}] {
		return nil
	}
	list, where := &in.model.Opsets, "the model"
	if in.root != nil {
		list, where = &in.root.Opsets, "function "+in.root.describe()
	}
	have, want := opsetOf(*list, domain), f.Opset(domain)
	switch {
	case have == 0 && want == 0:
		return fmt.Errorf("function %s uses domain %q, which neither it nor %s imports", f.describe(), domain, where)
	case have == 0:
		*list = append(*list, Opset{domain, want})
	case want != 0 && want != have:
		return fmt.Errorf("function %s imports version %d of domain %q, and %s version %d", f.describe(), want, domain,
			where, have)
	}
	in.imported[importKey{f, domain}] = true
	return nil
}

func (in *inliner) tooMany() error {
	if in.depth > maxCallDepth {
		return fmt.Errorf("calls nest more than %d deep", maxCallDepth)
	}
	return fmt.Errorf("it would make more than %d nodes", maxInlined)
}

// dropFunctions drops uncalled functions with the imports of their domains. It also drops the types that exporters
// before IR version 10 declare for their values in the main graph, as DOMAIN::FUNCTION/VALUE.
func (in *inliner) dropFunctions() {
	m := in.model
	called := m.called()
	domains, prefixes := map[string]bool{}, map[string]bool{}
	m.Functions = slices.DeleteFunc(m.Functions, func(f *Function) bool {
		if !called[f] {
			domains[f.Domain], prefixes[f.Domain+"::"+f.Name] = true, true
		}
		return !called[f]
	})
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			delete(domains, n.Domain)
		}
	}
	m.Opsets = slices.DeleteFunc(m.Opsets, func(o Opset) bool {
		return domains[o.Domain] && !IsStandardDomain(o.Domain)
	})
	if p := m.Graph.proto; p != nil {
		p.ValueInfo = slices.DeleteFunc(p.ValueInfo, func(i *onnxpb.ValueInfoProto) bool {
			function, _, nested := strings.Cut(i.GetName(), "/")
			return nested && prefixes[function] && m.Graph.values[i.GetName()] == nil
		})
	}
}

func (f *Function) describe() string {
	if f.Overload != "" {
		return fmt.Sprintf("%s.%s (overload %q)", f.Domain, f.Name, f.Overload)
	}
	return f.Domain + "." + f.Name
}

func (f *Function) hasDefault(name string) bool {
	return slices.ContainsFunc(f.Defaults, func(a *Attribute) bool { return a.Name == name })
}
