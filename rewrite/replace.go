package rewrite

import (
	"encoding/json"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// The metadata_props keys of the nodes that replace a site.
const (
	MetaRule        = "mojo_patch.rule"         // name of the pattern
	MetaSourceNodes = "mojo_patch.source_nodes" // JSON list of the replaced nodes' names
	MetaVersion     = "mojo_patch.version"      // version of the tool
)

// minIRVersion is the first with function overloads and metadata on nodes.
const minIRVersion = 10

// replace puts the replacement of every candidate at its site.
func (a *applier) replace(list []*candidate) error {
	names := a.nodeNames()
	byScope := map[*scope][]*candidate{}
	var scopes []*scope
	for _, c := range list {
		if byScope[c.scope] == nil {
			scopes = append(scopes, c.scope)
		}
		byScope[c.scope] = append(byScope[c.scope], c)
	}
	for _, s := range scopes {
		if err := a.replaceIn(s, byScope[s], names); err != nil {
			return err
		}
	}
	for _, c := range list {
		for _, f := range c.functions {
			a.addFunction(f)
		}
		for _, n := range c.match.Replacement.Nodes {
			if onnx.IsStandardDomain(n.Domain) {
				continue
			}
			a.model.ImportOpset(n.Domain, fused.Version) // 1, as other domains' are
			if f := c.scope.function; f != nil && f.Opset(n.Domain) == 0 {
				f.Opsets = append(f.Opsets, onnx.Opset{Domain: n.Domain, Version: a.model.Opset(n.Domain)})
			}
		}
	}
	convert.RaiseIR(a.model, minIRVersion)
	return nil
}

// dropFalseShapes drops declared shapes of inner values that nodes contradict. onnxruntime reuses buffers by declared
// shapes: it runs a model in which no buffer is reused so, and may not run the patched one.
func (a *applier) dropFalseShapes() {
	names := map[string]bool{}
	for _, v := range a.model.Graph.Inputs {
		t, _ := v.Type()
		for _, d := range t.Dims {
			names[d.Param] = true
		}
	}
	a.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil && !v.IsOutput() && a.facts.Contradicts(v, names) {
					t, _ := v.Type()
					v.SetType(onnx.Type{DataType: t.DataType})
				}
			}
		}
	})
}

// readInitializers returns the initializers that something reads, by their graphs. onnxruntime warns of others.
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

func (a *applier) replaceIn(s *scope, list []*candidate, names map[string]bool) error {
	g := s.graph
	order := s.positions()
	before := map[*onnx.Node][]*onnx.Node{}
	sort := false
	var old []*onnx.Node
	w := &writer{applier: a, scope: s, names: names, shared: map[string][]*onnx.Value{},
		constants: map[string]*onnx.Value{}}
	for _, c := range list {
		at := c.match.Outputs[0].Producer
		for _, v := range c.match.Outputs {
			if order[v.Producer] < order[at] {
				at = v.Producer
			}
		}
		nodes := w.write(c)
		for _, n := range nodes {
			for _, v := range n.Inputs {
				if v == nil || v.Producer == nil || v.Producer.Graph != g {
					continue
				}
				if place, placed := order[v.Producer]; placed && place >= order[at] {
					sort = true // an input is made later, such as a cast scale of a sum: Sort moves what depends on it
				}
			}
		}
		for _, n := range nodes { // they stand just before at
			order[n] = order[at]
		}
		before[at] = append(before[at], nodes...)
		old = append(old, c.slice.nodes...)
	}
	g.InsertAt(before)
	dead, constants := convert.Unread(old)
	if err := g.RemoveNodes(dead); err != nil {
		return fmt.Errorf("cannot remove the replaced nodes: %w", err)
	}
	w.fill(dead)
	byGraph := map[*onnx.Graph]map[*onnx.Value]bool{}
	for v := range constants {
		if byGraph[v.Graph] == nil {
			byGraph[v.Graph] = map[*onnx.Value]bool{}
		}
		byGraph[v.Graph][v] = true
	}
	for owner, vs := range byGraph {
		owner.RemoveUnusedInitializers(vs)
	}
	if sort {
		if err := g.Sort(); err != nil {
			return fmt.Errorf("the fused nodes cannot be put in order: %w", err)
		}
	}
	return nil
}

// addNode adds a node of the standard that computes out; Sort puts it in its place.
func (a *applier) addNode(g *onnx.Graph, op string, out *onnx.Value, metadata []onnx.Entry,
	inputs ...*onnx.Value) *onnx.Node {
	n := g.AddNode(op, inputs, []*onnx.Value{out})
	n.Name, n.Metadata = out.Name+"_"+op, metadata
	return n
}

// addFunction adds a definition to the model, unless it has it.
func (a *applier) addFunction(f *onnx.Function) {
	if a.model.Function(f.Domain, f.Name, f.Overload) == nil {
		a.model.Functions = append(a.model.Functions, f)
	}
}

// provenance keeps the metadata of the replaced nodes, the last one's first, and adds where the node comes from.
func (a *applier) provenance(c *candidate) []onnx.Entry {
	var entries []onnx.Entry
	have := map[string]bool{MetaRule: true, MetaSourceNodes: true, MetaVersion: true}
	add := func(n *onnx.Node) {
		for _, e := range n.Metadata {
			if !have[e.Key] {
				have[e.Key] = true
				entries = append(entries, e)
			}
		}
	}
	add(c.match.Root)
	for i := len(c.slice.nodes) - 1; i >= 0; i-- {
		add(c.slice.nodes[i])
	}
	return append(entries, a.config.origin(c.match.Pattern, c.slice.nodes...)...)
}

// sourceNames lists the nodes of the model as it was that nodes stand for: those each was made of, or itself.
func sourceNames(nodes []*onnx.Node) []string {
	var names []string
	have := map[string]bool{}
	for _, n := range nodes {
		made := SourceNodes(n)
		if len(made) == 0 {
			made = []string{nodeName(n)}
		}
		for _, name := range made {
			if !have[name] {
				have[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// SourceNodes lists the nodes of the model before, by their names, that the metadata of a node say it stands for.
func SourceNodes(n *onnx.Node) (names []string) {
	for _, e := range n.Metadata {
		if e.Key == MetaSourceNodes && json.Unmarshal([]byte(e.Value), &names) != nil {
			return nil
		}
	}
	return names
}

// origin is the metadata of a node that a rule makes in the place of others, or besides.
func (c *config) origin(rule string, replaced ...*onnx.Node) []onnx.Entry {
	entries := []onnx.Entry{{Key: MetaRule, Value: rule}}
	if len(replaced) > 0 {
		names, err := json.Marshal(sourceNames(replaced))
		if err != nil {
			names = []byte("[]") // strings always marshal
		}
		entries = append(entries, onnx.Entry{Key: MetaSourceNodes, Value: string(names)})
	}
	return append(entries, onnx.Entry{Key: MetaVersion, Value: c.version})
}

func (a *applier) nodeNames() map[string]bool {
	names := make(map[string]bool, len(a.model.Graph.Nodes))
	for _, g := range a.model.Graphs() {
		for _, n := range g.Nodes {
			names[n.Name] = true
		}
	}
	return names
}
