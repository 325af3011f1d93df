package onnx

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// Graph is a graph of a model, the body of a control-flow attribute, or the body of a function.
type Graph struct {
	Name     string
	Nodes    []*Node // in topological order, as ONNX requires
	Inputs   []*Value
	Outputs  []*Value // may contain a value of an enclosing graph
	Metadata []Entry
	// Parent is the graph whose node holds this one, nil for the main graph and for functions.
	Parent *Graph

	initializers []*Value // in file order
	values       map[string]*Value
	declared     []*onnxpb.ValueInfoProto // of the outputs, as read
	infoOrder    []*Value                 // the values with a value_info entry, in file order
	names        *names
	proto        *onnxpb.GraphProto

	// While decoding: the current node, and whether one precedes the producer of its input.
	reading  int
	unsorted bool
}

// names are the value names in use in a model or function, so that new ones are unique in every scope.
type names struct {
	used map[string]struct{}
	next map[string]int
}

// Initializers lists the values that have constant elements, in file order.
func (g *Graph) Initializers() []*Value { return g.initializers }

// Value finds a value of this graph or an enclosing one by name, or nil.
func (g *Graph) Value(name string) *Value {
	for ; g != nil; g = g.Parent {
		if v := g.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// NewValue makes a value named hint, or hint_1, hint_2, … if the name is taken in the model.
func (g *Graph) NewValue(hint string) *Value {
	v := &Value{Name: g.names.unique(hint), Graph: g}
	g.values[v.Name] = v
	return v
}

// AddInitializer makes t a constant of the graph, under t.Name or a unique name like it.
func (g *Graph) AddInitializer(t *Tensor) *Value {
	v := g.NewValue(t.Name)
	t.Name = v.Name
	v.Const = t
	g.initializers = append(g.initializers, v)
	return v
}

// AddInput makes a new input of the graph. A zero t declares no type, as for inputs of functions.
func (g *Graph) AddInput(name string, t Type) *Value {
	v := g.NewValue(name)
	v.IsInput = true
	if t.DataType != Undefined || t.HasShape {
		v.SetType(t)
	}
	g.Inputs = append(g.Inputs, v)
	return v
}

// AddDefault makes a new input of the graph with a default, which callers may override. It has the name of the
// default, or that name with a number if it is taken.
func (g *Graph) AddDefault(t Type, d *Tensor) *Value {
	v := g.AddInitializer(d)
	v.IsInput = true
	v.SetType(t)
	g.Inputs = append(g.Inputs, v)
	return v
}

// NewSubgraph makes an empty graph for an attribute of one of g's nodes, such as the body of a Loop. It sees the values
// of g.
func (g *Graph) NewSubgraph(name string) *Graph {
	s := newGraph(g, g.names, 0)
	s.Name = name
	return s
}

// AddOutput makes v an output of the graph.
func (g *Graph) AddOutput(v *Value) {
	g.Outputs = append(g.Outputs, v)
	v.outputs++
}

// Rename renames a value of the graph, such as an input or output. It returns an error if the name is taken in any
// scope of the model.
func (g *Graph) Rename(v *Value, name string) error {
	if v.Name == name {
		return nil
	}
	if _, taken := g.names.used[name]; taken || name == "" {
		return fmt.Errorf("value %q cannot be named %q: the name is taken", v.Name, name)
	}
	delete(g.values, v.Name)
	delete(g.names.used, v.Name)
	v.Name = g.names.unique(name)
	g.values[v.Name] = v
	if v.Const != nil {
		v.Const.Name = name
	}
	if v.info != nil {
		v.info.Name = ptr(name)
	}
	return nil
}

// RemovePort removes an unused input or an output from the graph's list, and reports whether it did. The value of an
// output stays.
func (g *Graph) RemovePort(v *Value) bool {
	if i := slices.Index(g.Outputs, v); i >= 0 {
		g.Outputs = slices.Delete(g.Outputs, i, i+1)
		v.outputs--
		return true
	}
	i := slices.Index(g.Inputs, v)
	if i < 0 || len(v.uses) > 0 || v.outputs > 0 {
		return false
	}
	g.Inputs = slices.Delete(g.Inputs, i, i+1)
	return true
}

// AddNode appends a node that reads inputs and writes outputs (nil for omitted ones), which must have no producer.
// Append in topological order, or call Sort afterwards.
func (g *Graph) AddNode(opType string, inputs, outputs []*Value, attrs ...*Attribute) *Node {
	n := g.NewNode(opType, inputs, attrs...)
	n.Outputs = make([]*Value, len(outputs))
	for i, v := range outputs {
		if v != nil {
			n.TakeOutput(i, v)
		}
	}
	g.Nodes = append(g.Nodes, n)
	return n
}

// NewNode makes a node of the graph without outputs that is not in Nodes yet; see InsertAt.
func (g *Graph) NewNode(opType string, inputs []*Value, attrs ...*Attribute) *Node {
	n := &Node{OpType: opType, Graph: g, Attributes: attrs}
	for i, v := range inputs {
		n.SetInput(i, v)
	}
	if len(inputs) > 0 && len(n.Inputs) < len(inputs) {
		n.Inputs = append(n.Inputs, make([]*Value, len(inputs)-len(n.Inputs))...)
	}
	return n
}

// InsertAt inserts each list of new nodes before the node of Nodes that it is keyed by, in one pass.
func (g *Graph) InsertAt(before map[*Node][]*Node) {
	out := make([]*Node, 0, len(g.Nodes)+len(before))
	for _, n := range g.Nodes {
		out = append(out, before[n]...)
		out = append(out, n)
	}
	g.Nodes = out
}

// RemoveNodes removes nodes from the graph with the values that only they write, in one pass. It returns an error and
// changes nothing if a remaining node still reads such a value, or if it is a graph output.
func (g *Graph) RemoveNodes(dead map[*Node]bool) error {
	removed, outer := withNested(dead)
	for _, n := range g.Nodes { // in graph order, which is the order in memory
		if !dead[n] {
			continue
		}
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			if v.outputs > outer[v] {
				return fmt.Errorf("cannot remove node %q (%s): its output %q is a graph output", n.Name, n.OpType,
					v.Name)
			}
			for _, u := range v.uses {
				if !removed[u.Node] {
					return fmt.Errorf("cannot remove node %q (%s): its output %q is read by node %q (%s)",
						n.Name, n.OpType, v.Name, u.Node.Name, u.Node.OpType)
				}
			}
		}
	}
	filtered := make(map[*Value]bool, len(removed)) // a value may have many uses: filter them once
	for n := range removed {
		for _, v := range n.Inputs {
			if v != nil && !filtered[v] {
				filtered[v] = true
				v.uses = slices.DeleteFunc(v.uses, func(u Use) bool { return removed[u.Node] })
			}
		}
	}
	for v, times := range outer {
		v.outputs -= times
	}
	kept := make([]*Node, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		if !dead[n] {
			kept = append(kept, n)
			continue
		}
		for _, v := range n.Outputs {
			if v != nil {
				v.Graph.forget(v)
			}
		}
		n.Graph = nil
	}
	g.Nodes = kept
	return nil
}

// withNested adds the nodes in the subgraphs of dead ones, and counts the values of enclosing graphs that are outputs
// of those subgraphs.
func withNested(dead map[*Node]bool) (removed map[*Node]bool, outer map[*Value]int) {
	outer = map[*Value]int{}
	nested := false
	for n := range dead {
		nested = nested || len(n.Subgraphs()) > 0
	}
	if !nested {
		return dead, outer
	}
	removed = make(map[*Node]bool, len(dead))
	for n := range dead {
		removed[n] = true
		for _, s := range n.Subgraphs() {
			s.Walk(func(g *Graph) {
				for _, m := range g.Nodes {
					removed[m] = true
				}
				for _, v := range g.Outputs {
					if v.Graph != g {
						outer[v]++
					}
				}
			})
		}
	}
	return removed, outer
}

// RemoveUnusedInitializers removes the unused candidates.
func (g *Graph) RemoveUnusedInitializers(candidates map[*Value]bool) {
	kept := make([]*Value, 0, len(g.initializers))
	for _, v := range g.initializers {
		if candidates[v] && len(v.uses) == 0 && !v.IsOutput() && !v.IsInput {
			g.forget(v)
			continue
		}
		kept = append(kept, v)
	}
	g.initializers = kept
}

// Walk calls f for the graph and for every graph in its nodes' attributes, outer ones first.
func (g *Graph) Walk(f func(*Graph)) {
	f(g)
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			s.Walk(f)
		}
	}
}

// newNames makes an empty set with room for size names.
func newNames(size int) *names {
	return &names{used: make(map[string]struct{}, size), next: map[string]int{}}
}

func (s *names) unique(hint string) string {
	if hint == "" {
		hint = "value"
	}
	name := hint
	for {
		if _, taken := s.used[name]; !taken {
			s.used[name] = struct{}{}
			return name
		}
		s.next[hint]++
		name = hint + "_" + strconv.Itoa(s.next[hint])
	}
}
