package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// scope is a graph that matches are looked for in.
type scope struct {
	graph    *onnx.Graph
	function *onnx.Function // whose body the graph is, or is part of
	place    string         // of the graph in the model, "" for the main one
	order    map[*onnx.Node]int
}

// scopes lists the graphs of a model, outer ones first, but for the bodies of the functions that skip says yes to.
func scopes(m *onnx.Model, skip func(*onnx.Function) bool) (list []*scope) {
	var add func(*scope)
	add = func(s *scope) {
		list = append(list, s)
		for _, n := range s.graph.Nodes {
			for _, attribute := range n.Attributes {
				for _, g := range attribute.Subgraphs() {
					add(&scope{graph: g, function: s.function,
						place: fmt.Sprintf("%s%s.%s/", s.place, nodeName(n), attribute.Name)})
				}
			}
		}
	}
	add(&scope{graph: m.Graph})
	for _, f := range m.Functions {
		if !skip(f) {
			place := f.Domain + "." + f.Name + "/"
			if f.Overload != "" {
				place = functionName(f) + "/"
			}
			add(&scope{graph: f.Body, function: f, place: place})
		}
	}
	return list
}

// id names a site: by the pattern, the place of its graph, and the value that its last node makes. Names of nodes may
// be missing or stand twice, those of values do not. Nothing else is part of it, so that it stays the same whatever
// becomes of other sites.
func (s *scope) id(m *patterns.Match) string { return siteID(m.Pattern, s.place, m.Outputs) }

func siteID(pattern, place string, outputs []*onnx.Value) string {
	i := slices.IndexFunc(outputs, func(v *onnx.Value) bool { return v != nil })
	return pattern + ":" + place + outputs[i].Name
}

// positions returns the place of every node of the graph.
func (s *scope) positions() map[*onnx.Node]int {
	if s.order == nil {
		s.order = make(map[*onnx.Node]int, len(s.graph.Nodes))
		for i, n := range s.graph.Nodes {
			s.order[n] = i
		}
	}
	return s.order
}
