package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// replace replaces the sites of all candidates.
func (p *Plan) replace(list []*candidate) error {
	names, packed := p.nodeNames(), map[string]*onnx.Value{}
	byScope := map[*pass.Scope][]*candidate{}
	var scopes []*pass.Scope
	for _, c := range list {
		if byScope[c.Scope] == nil {
			scopes = append(scopes, c.Scope)
		}
		byScope[c.Scope] = append(byScope[c.Scope], c)
	}
	for _, s := range scopes {
		if err := p.replaceIn(byScope[s], &writer{run: p.run, scope: s, names: names, packed: packed,
			shared: map[string][]*onnx.Value{}, constants: map[string]*onnx.Value{}}); err != nil {
			return err
		}
	}
	change := new(edit.Change)
	for _, c := range list {
		for _, f := range c.Functions {
			change.AddFunction(p.run.Model, f)
		}
		for _, n := range c.Match.Replacement.Nodes {
			if !onnx.IsStandardDomain(n.Domain) { // version 1, as for other domains
				change.ImportOpset(p.run.Model, c.Scope.Function, n.Domain, fused.Version)
			}
		}
	}
	change.RaiseIR(p.run.Model, edit.MinIRVersion)
	return nil
}

// dropFalseShapes drops declared shapes of inner values that contradict their nodes. onnxruntime reuses buffers by
// declared shapes: it may run the original, which reuses no such buffer, but not the patched model.
func (p *Plan) dropFalseShapes() {
	names := map[string]bool{}
	for _, v := range p.run.Model.Graph.Inputs {
		t, _ := v.Type()
		for _, d := range t.Dims {
			names[d.Param] = true
		}
	}
	p.run.Model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil && !v.IsOutput() && p.run.Facts.Contradicts(v, names) {
					t, _ := v.Type()
					v.SetType(onnx.Type{DataType: t.DataType})
				}
			}
		}
	})
}

// readInitializers returns the initializers with readers, by graph. onnxruntime warns of unread ones.
func readInitializers(m *onnx.Model) map[*onnx.Graph]map[*onnx.Value]bool {
	read := map[*onnx.Graph]map[*onnx.Value]bool{}
	for _, g := range m.Graphs() {
		read[g] = map[*onnx.Value]bool{}
		for _, v := range g.Initializers() {
			if len(v.Uses()) > 0 {
				read[g][v] = true
			}
		}
	}
	return read
}

// replaceIn replaces the sites of the candidates in one graph.
func (p *Plan) replaceIn(list []*candidate, w *writer) error {
	order := w.scope.Positions()
	for _, c := range list {
		at := c.Match.Outputs[0].Producer
		for _, v := range c.Match.Outputs {
			if order[v.Producer] < order[at] {
				at = v.Producer
			}
		}
		// an input may be computed later, such as a cast scale of a sum: Finish moves the nodes that depend on it
		w.edit.Insert(at, w.write(c)...)
		w.edit.Drop(c.Nodes()...)
	}
	if err := w.edit.Finish(); err != nil {
		return err
	}
	w.fill()
	return nil
}

// provenance merges the metadata of the replaced nodes, the last node's first, and adds the node's origin.
func (w *writer) provenance(c *candidate) []onnx.Entry {
	var entries []onnx.Entry
	have := map[string]bool{edit.MetaRule: true, edit.MetaSourceNodes: true, edit.MetaVersion: true}
	add := func(n *onnx.Node) {
		for _, e := range n.Metadata {
			if !have[e.Key] {
				have[e.Key] = true
				entries = append(entries, e)
			}
		}
	}
	add(c.Match.Root)
	for i := len(c.Nodes()) - 1; i >= 0; i-- {
		add(c.Nodes()[i])
	}
	return append(entries, w.run.Origin(c.Match.Pattern, c.Nodes()...)...)
}

func (p *Plan) nodeNames() map[string]bool {
	names := make(map[string]bool, len(p.run.Model.Graph.Nodes))
	for _, g := range p.run.Model.Graphs() {
		for _, n := range g.Nodes {
			names[n.Name] = true
		}
	}
	return names
}

// writer writes the replacements in one graph.
type writer struct {
	edit  edit.Change
	run   *pass.Run
	scope *pass.Scope
	names map[string]bool // of nodes, in use
	// packed holds the main graph's initializers that are computed from others, by key.
	packed map[string]*onnx.Value
	// shared holds standard nodes before fused ops, and constants the initializers of the graph, by their computation:
	// sites share equal ones.
	shared    map[string][]*onnx.Value
	constants map[string]*onnx.Value
	taken     []taken
}

// taken is an output that a fused node computes instead of its original node.
type taken struct {
	from  *onnx.Node
	index int
	value *onnx.Value
}

// fill replaces each output that was taken from a node that stays, because another of its outputs is read, with an
// unread value: the op may require the output.
func (w *writer) fill() {
	for _, t := range w.taken {
		if t.from.Graph != nil && t.from.OutputValue(t.index) == nil {
			w.edit.TakeOutput(t.from, t.index, w.scope.Graph.NewValue(t.value.Name+"_unread"))
		}
	}
}

// write makes the nodes of a candidate's replacement, which take over the match's outputs. It does not add them to the
// graph's list of nodes.
func (w *writer) write(c *candidate) []*onnx.Node {
	replacement := c.Match.Replacement
	stands := map[*onnx.Value]*onnx.Value{}
	for i, v := range replacement.Inputs {
		stands[v] = c.Match.Inputs[i]
	}
	results := map[*onnx.Value]*onnx.Value{}
	for i, v := range replacement.Outputs {
		results[v] = c.Match.Outputs[i]
	}
	metadata := w.provenance(c)
	var nodes []*onnx.Node
	for _, n := range replacement.Nodes {
		if c.constants[n.Outputs[0]] != nil {
			continue
		}
		inputs := make([]*onnx.Value, len(n.Inputs))
		for i, v := range n.Inputs {
			if k := c.constants[v]; k != nil {
				inputs[i] = w.initializerOf(c, v, k)
			} else if v != nil {
				inputs[i] = stands[v]
			}
		}
		key := ""
		if isShared(n, results) {
			key = sharedKey(n, inputs)
			if have := w.shared[key]; have != nil {
				for i, v := range n.Outputs {
					stands[v] = have[i]
				}
				continue
			}
		}
		name, outputs := w.nodeName(c, n), make([]*onnx.Value, len(n.Outputs))
		for i, v := range n.Outputs {
			if v == nil {
				continue
			}
			out := results[v]
			if out != nil {
				w.declare(out, w.run.Facts, out)
			} else {
				out = w.scope.Graph.NewValue(c.Match.Outputs[0].Name + "_" + v.Name)
				w.declare(out, c.Facts, v)
			}
			if out.Producer != nil {
				w.taken = append(w.taken, taken{out.Producer, out.Output, out})
			}
			outputs[i], stands[v] = out, out
		}
		made := w.edit.NewNode(w.scope.Graph, n.OpType, inputs, outputs, n.Attributes...)
		made.Name, made.Metadata = name, slices.Clone(metadata)
		made.Domain, made.Overload = n.Domain, n.Overload
		if key != "" {
			w.shared[key] = made.Outputs
		}
		nodes = append(nodes, made)
	}
	return nodes
}

// isShared reports whether one node can serve several sites: standard nodes that compute no result of the match.
func isShared(n *onnx.Node, results map[*onnx.Value]*onnx.Value) bool {
	return onnx.IsStandardDomain(n.Domain) && !n.IsRandom() &&
		!slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return results[v] != nil })
}

func sharedKey(n *onnx.Node, inputs []*onnx.Value) string {
	return fmt.Sprintf("%s %q %d %s", n.OpType, onnx.Names(inputs), len(n.Outputs), onnx.AttributesKey(n.Attributes))
}

// declare sets the known type on a value without a declared type. Runtimes inferred the types of the replaced nodes,
// but cannot infer those of a custom op, and plan memory worse without types. (A function's body takes the types of
// each call.)
func (w *writer) declare(v *onnx.Value, facts *infer.Facts, known *onnx.Value) {
	if _, declared := v.Type(); declared || w.scope.Function != nil {
		return
	}
	if t, ok := facts.Type(known); ok {
		v.SetType(t)
	}
}

// nodeName names a new node after the last node that it replaces, so that users find it.
func (w *writer) nodeName(c *candidate, n *onnx.Node) string {
	base := c.Match.Root.Label() + "_" + n.OpType
	name := base
	for i := 1; w.names[name]; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	w.names[name] = true
	return name
}
