package patterns

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Miss says why a node that looked like part of a pattern did not match.
type Miss = match.Miss

// fitted begins the names of the patterns of ops that are fitted.
const fitted = "fit:"

// Fitted reports whether no pattern says how the block is spelled: an op was fitted to what it computes.
func (m *Match) Fitted() bool { return strings.HasPrefix(m.Pattern, fitted) }

// Match is one site of a graph that reads like a pattern: a suspicion, until package rewrite has checked it.
type Match struct {
	// Pattern is the name of the pattern.
	Pattern string
	// Op, in domain Domain, is the main op of the pattern's right side: the first of a domain other than the
	// standard's, or else the outermost.
	Op     string
	Domain string
	// Root is the node that makes the first output.
	Root *onnx.Node
	// Nodes are the matched nodes.
	Nodes []*onnx.Node
	// Inputs are the existing values that the replacement reads, each once; Outputs are those that it is to write.
	Inputs  []*onnx.Value
	Outputs []*onnx.Value
	// Roles are what those Inputs are to the op that have a role there.
	Roles site.Roles
	// Replacement holds the nodes that may take the place of the match, for the opset of the model: its inputs and
	// outputs stand for Inputs and Outputs. It is nil when Problem says why the model's opset does not allow it.
	Replacement *onnx.Graph
	Problem     error
	// Functions are the functions given in pattern files that the replacement calls.
	Functions []*onnx.Function
	// Alike reports whether two values are computed by equal nodes from equal values, which the match takes for one. It
	// holds as long as the graph is not changed.
	Alike func(v, w *onnx.Value) bool
	// Repeats reports whether the last axis of a value is known to hold everything twice, one half after the other or,
	// by neighbours, each element beside its double. It holds as long as Alike does.
	Repeats func(v *onnx.Value, neighbours bool) bool
	// Parts are the matches that this one is made of, where it is: what stands there if it is not to be replaced as a
	// whole.
	Parts []*Match
	// Smaller returns the next smaller reading of the same block, for when this match is refused: the same main
	// output from fewer nodes. It is nil, or returns nil, where there is no other reading. It may be called as long
	// as the graph is not changed.
	Smaller func() *Match
	// Attributes are the attributes of the main op.
	Attributes []*onnx.Attribute
	// Attention is the block that a match of Attention was read as, and nil for other matches.
	Attention *attention.Reading
}
