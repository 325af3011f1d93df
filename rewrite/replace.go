package rewrite

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// replace puts the replacement of every candidate at its site.
func (a *applier) replace(list []*candidate) error {
	names := a.nodeNames()
	byScope := map[*pass.Scope][]*candidate{}
	var scopes []*pass.Scope
	for _, c := range list {
		if byScope[c.Scope] == nil {
			scopes = append(scopes, c.Scope)
		}
		byScope[c.Scope] = append(byScope[c.Scope], c)
	}
	for _, s := range scopes {
		if err := a.replaceIn(s, byScope[s], names); err != nil {
			return err
		}
	}
	for _, c := range list {
		for _, f := range c.Functions {
			a.AddFunction(f)
		}
		for _, n := range c.Match.Replacement.Nodes {
			if onnx.IsStandardDomain(n.Domain) {
				continue
			}
			a.Model.ImportOpset(n.Domain, fused.Version) // 1, as other domains' are
			if f := c.Scope.Function; f != nil && f.Opset(n.Domain) == 0 {
				f.Opsets = append(f.Opsets, onnx.Opset{Domain: n.Domain, Version: a.Model.Opset(n.Domain)})
			}
		}
	}
	convert.RaiseIR(a.Model, edit.MinIRVersion)
	return nil
}

// dropFalseShapes drops declared shapes of inner values that nodes contradict. onnxruntime reuses buffers by declared
// shapes: it runs a model in which no buffer is reused so, and may not run the patched one.
func (a *applier) dropFalseShapes() {
	names := map[string]bool{}
	for _, v := range a.Model.Graph.Inputs {
		t, _ := v.Type()
		for _, d := range t.Dims {
			names[d.Param] = true
		}
	}
	a.Model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil && !v.IsOutput() && a.Facts.Contradicts(v, names) {
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

func (a *applier) replaceIn(s *pass.Scope, list []*candidate, names map[string]bool) error {
	g := s.Graph
	order := s.Positions()
	before := map[*onnx.Node][]*onnx.Node{}
	sort := false
	var old []*onnx.Node
	w := &writer{applier: a, scope: s, names: names, shared: map[string][]*onnx.Value{},
		constants: map[string]*onnx.Value{}}
	for _, c := range list {
		at := c.Match.Outputs[0].Producer
		for _, v := range c.Match.Outputs {
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
		old = append(old, c.Nodes()...)
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

// provenance keeps the metadata of the replaced nodes, the last one's first, and adds where the node comes from.
func (a *applier) provenance(c *candidate) []onnx.Entry {
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
	return append(entries, a.Origin(c.Match.Pattern, c.Nodes()...)...)
}

func (a *applier) nodeNames() map[string]bool {
	names := make(map[string]bool, len(a.Model.Graph.Nodes))
	for _, g := range a.Model.Graphs() {
		for _, n := range g.Nodes {
			names[n.Name] = true
		}
	}
	return names
}
