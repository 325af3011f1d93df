package rewrite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// RevertReport lists the sites of a patched model that became standard ops again. Its JSON form is schema 1.
type RevertReport struct {
	Schema   int           `json:"schema"`
	Input    *FileReport   `json:"input,omitempty"`  // filled by the caller
	Output   *FileReport   `json:"output,omitempty"` // filled by the caller
	Reverted []PatchedNode `json:"reverted"`
	// Left are fused ops that were not selected.
	Left []PatchedNode `json:"left,omitempty"`
	// Standard are standard nodes that replaced a site or were added beside one: they stay.
	Standard []PatchedNode `json:"standard,omitempty"`
}

// PatchedNode is a node that patching made.
type PatchedNode struct {
	Node    string   `json:"node"` // its name, or its output if it has no name
	Op      string   `json:"op"`
	Pattern string   `json:"pattern,omitempty"` // absent if the metadata were removed
	Sources []string `json:"sources,omitempty"` // the original nodes that it replaces
}

// Revert replaces the fused ops that take selects (nil: all) by the definitions in the model. They then need no kernel,
// and a model without fused ops has no trace of their domain. Other changes of patching stay: stacked weights, raised
// opsets, caches in another form. The new nodes keep the names of the site's original nodes (MetaSourceNodes).
//
// It returns an error if the model lacks the definition of an op; then the model is unchanged.
func Revert(m *onnx.Model, take func(PatchedNode) bool) (*RevertReport, error) {
	r := &RevertReport{Schema: Schema, Reverted: []PatchedNode{}}
	reverted := map[*onnx.Node]bool{}
	var failures []error
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			p := patchedNode(n)
			switch {
			case n.Domain != fused.Domain:
				if p.Pattern != "" {
					r.Standard = append(r.Standard, p)
				}
			case take != nil && !take(p):
				r.Left = append(r.Left, p)
			case m.Function(n.Domain, n.OpType, n.Overload) == nil:
				failures = append(failures, fmt.Errorf("node %q: the model has no function %s.%s (overload %q)",
					p.Node, n.Domain, n.OpType, n.Overload))
			default:
				r.Reverted = append(r.Reverted, p)
				reverted[n] = true
			}
		}
	}
	if len(failures) > 0 {
		return nil, fmt.Errorf("the definitions of the fused ops are missing: patch the original model again (%w)",
			errors.Join(failures[:min(len(failures), 3)]...))
	}
	for n := range reverted {
		n.Metadata = slices.DeleteFunc(slices.Clone(n.Metadata), func(e onnx.Entry) bool {
			return e.Key == edit.MetaRule || e.Key == edit.MetaVersion
		})
	}
	had := nodesOf(m)
	c := new(edit.Change)
	if _, err := c.InlineCalls(m, func(n *onnx.Node) bool { return reverted[n] }); err != nil {
		return nil, err
	}
	c.DropImport(m, fused.Domain)
	return r, convert.SettleCasts(m, func(n *onnx.Node) bool { return !had[n] })
}

func nodesOf(m *onnx.Model) map[*onnx.Node]bool {
	nodes := map[*onnx.Node]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			nodes[n] = true
		}
	}
	return nodes
}

func patchedNode(n *onnx.Node) PatchedNode {
	p := PatchedNode{Node: n.Label(), Op: onnx.OpName(n.Domain, n.OpType), Sources: edit.SourceNodes(n)}
	for _, e := range n.Metadata {
		if e.Key == edit.MetaRule {
			p.Pattern = e.Value
		}
	}
	return p
}
