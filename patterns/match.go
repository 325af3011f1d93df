package patterns

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Match is one site of a graph that reads like a pattern: a suspicion, until package rewrite has checked it.
type Match struct {
	// Pattern is the name of the pattern.
	Pattern string
	// Op is the fused op that the pattern's right side names, in domain Domain.
	Op     string
	Domain string
	// Root is the node that makes the first output.
	Root *onnx.Node
	// Nodes are the matched nodes.
	Nodes []*onnx.Node
	// Inputs and Outputs are existing values of the graph, in the order of the fused op.
	Inputs  []*onnx.Value
	Outputs []*onnx.Value
	// Alike says whether two values are computed by equal nodes from equal values, which the match takes for one. It holds as
	// long as the graph is not changed.
	Alike func(v, w *onnx.Value) bool
	// Attributes are the attributes of the fused node.
	Attributes []*onnx.Attribute
}

// Miss says why a node that looked like part of a pattern did not match: the best partial match, and where it stopped.
type Miss struct {
	Pattern string
	// Anchor is the node that raised the suspicion, Node the one where matching stopped (the same, at worst).
	Anchor *onnx.Node
	Node   *onnx.Node
	// Expected is what the pattern wants there, Found what stands there.
	Expected string
	Found    string
}

// Reason says in one line what was expected and what was found.
func (m *Miss) Reason() string { return fmt.Sprintf("expected %s, found %s", m.Expected, m.Found) }
