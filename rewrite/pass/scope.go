package pass

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A Scope is a graph that is searched for blocks.
type Scope struct {
	Graph    *onnx.Graph
	Function *onnx.Function // whose body contains the graph
	Place    string         // path of the graph in the model, "" for the main one

	order map[*onnx.Node]int
}

// Scopes lists the graphs of a model, outer ones first, except the bodies of functions for which skip returns true.
func Scopes(m *onnx.Model, skip func(*onnx.Function) bool) (list []*Scope) {
	var add func(*Scope)
	add = func(s *Scope) {
		list = append(list, s)
		for _, n := range s.Graph.Nodes {
			for _, attribute := range n.Attributes {
				for _, g := range attribute.Subgraphs() {
					add(&Scope{Graph: g, Function: s.Function,
						Place: fmt.Sprintf("%s%s.%s/", s.Place, n.Label(), attribute.Name)})
				}
			}
		}
	}
	add(&Scope{Graph: m.Graph})
	for _, f := range m.Functions {
		if !skip(f) {
			place := f.Domain + "." + f.Name + "/"
			if f.Overload != "" {
				place = edit.FunctionName(f) + "/"
			}
			add(&Scope{Graph: f.Body, Function: f, Place: place})
		}
	}
	return list
}

// ID returns the id of a site: the pattern, the place of its graph, and the output of its last node. Names of nodes may
// be missing or duplicate; names of values are not. The id does not depend on other sites.
func (s *Scope) ID(m *patterns.Match) string { return SiteID(m.Pattern, s.Place, m.Outputs) }

// SiteID is Scope.ID for a site with these outputs in the graph at a place.
func SiteID(pattern, place string, outputs []*onnx.Value) string {
	i := slices.IndexFunc(outputs, func(v *onnx.Value) bool { return v != nil })
	return pattern + ":" + place + outputs[i].Name
}

// Positions returns the index of every node of the graph.
func (s *Scope) Positions() map[*onnx.Node]int {
	if s.order == nil {
		s.order = make(map[*onnx.Node]int, len(s.Graph.Nodes))
		for i, n := range s.Graph.Nodes {
			s.order[n] = i
		}
	}
	return s.order
}
