package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

type writer struct {
	*applier
	scope *pass.Scope
	names map[string]bool // of nodes, in use
	// shared holds the nodes of the standard before fused ops, constants the initializers of the graph, by what they
	// compute: sites that need the same have them once.
	shared    map[string][]*onnx.Value
	constants map[string]*onnx.Value
	taken     []taken
}

// taken is an output of a node that a fused one makes in its place.
type taken struct {
	from  *onnx.Node
	index int
	value *onnx.Value
}

// fill gives the nodes that stay, since others read another output of theirs, a value that nothing reads for each
// output that was taken: it may be one that the op must have.
func (w *writer) fill(dead map[*onnx.Node]bool) {
	for _, t := range w.taken {
		if !dead[t.from] && t.from.OutputValue(t.index) == nil {
			t.from.TakeOutput(t.index, w.scope.Graph.NewValue(t.value.Name+"_unread"))
		}
	}
}

// write makes the nodes of a candidate's replacement, which take over the match's outputs. They are not in the graph's
// list of nodes yet.
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
		made := w.scope.Graph.NewNode(n.OpType, inputs, n.Attributes...)
		made.Domain, made.Overload, made.Metadata = n.Domain, n.Overload, slices.Clone(metadata)
		made.Name = w.nodeName(c, n)
		made.Outputs = make([]*onnx.Value, len(n.Outputs))
		for i, v := range n.Outputs {
			if v == nil {
				continue
			}
			out := results[v]
			if out != nil {
				w.declare(out, w.Facts, out)
			} else {
				out = w.scope.Graph.NewValue(c.Match.Outputs[0].Name + "_" + v.Name)
				w.declare(out, c.Facts, v)
			}
			if out.Producer != nil {
				w.taken = append(w.taken, taken{out.Producer, out.Output, out})
			}
			made.TakeOutput(i, out)
			stands[v] = out
		}
		if key != "" {
			w.shared[key] = made.Outputs
		}
		nodes = append(nodes, made)
	}
	return nodes
}

// isShared reports whether one node can serve several sites: nodes of the standard that make no result of the match.
func isShared(n *onnx.Node, results map[*onnx.Value]*onnx.Value) bool {
	return onnx.IsStandardDomain(n.Domain) && !n.IsRandom() &&
		!slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return results[v] != nil })
}

func sharedKey(n *onnx.Node, inputs []*onnx.Value) string {
	return fmt.Sprintf("%s %q %d %s", n.OpType, onnx.Names(inputs), len(n.Outputs), onnx.AttributesKey(n.Attributes))
}

// declare gives a value that has no declared type the one that is known of it. Runtimes infer the types of the nodes
// that stood here and not of a custom op's, and without them they plan memory less well from there on. (A function's
// body has the types of each call.)
func (w *writer) declare(v *onnx.Value, facts *infer.Facts, known *onnx.Value) {
	if _, declared := v.Type(); declared || w.scope.Function != nil {
		return
	}
	if t, ok := facts.Type(known); ok {
		v.SetType(t)
	}
}

// nodeName names a new node after the last node that it replaces, so that it stays findable.
func (w *writer) nodeName(c *candidate, n *onnx.Node) string {
	base := c.Match.Root.Label() + "_" + n.OpType
	name := base
	for i := 1; w.names[name]; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	w.names[name] = true
	return name
}
