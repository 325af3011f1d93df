package patterns

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Miss tells why a node that looked like part of a pattern did not match.
type Miss = match.Miss

// fitted is the prefix of the names of patterns whose ops are fitted.
const fitted = "fit:"

// Fitted reports whether the op was fitted to the block's function instead of matched by its spelling.
func (m *Match) Fitted() bool { return strings.HasPrefix(m.Pattern, fitted) }

// A Match is a site of a graph that a pattern matches: a suspicion, until package rewrite has checked it.
type Match struct {
	// Pattern is the name of the pattern.
	Pattern string
	// Op, in domain Domain, is the main op of the pattern's right side: the first one outside the standard's domain, or
	// else the outermost.
	Op     string
	Domain string
	// Root is the node that computes the first output.
	Root *onnx.Node
	// Nodes are the matched nodes.
	Nodes []*onnx.Node
	// Inputs are the existing values that the replacement reads, each once; Outputs are those that it writes.
	Inputs  []*onnx.Value
	Outputs []*onnx.Value
	// Roles holds the roles that Inputs have for the op.
	Roles site.Roles
	// Replacement holds the nodes that may replace the match, for the model's opset. Its inputs and outputs correspond
	// to Inputs and Outputs. It is nil if Problem tells why the opset does not allow it.
	Replacement *onnx.Graph
	Problem     error
	// Intended holds, for constants of half types that the nodes read, the numbers that they are roundings of. The op
	// computes with these numbers.
	Intended map[*onnx.Value]*reference.Tensor
	// Functions are the functions of pattern files that the replacement calls.
	Functions []*onnx.Function
	// Alike reports whether two values are computed by equal nodes from equal values, which the match treats as one. It
	// is valid until the graph changes.
	Alike func(v, w *onnx.Value) bool
	// Repeats reports whether the last axis of a value is known to hold every element twice: in two equal halves or,
	// with neighbors, each beside its double. It is valid as long as Alike.
	Repeats func(v *onnx.Value, neighbors bool) bool
	// Parts are the matches that this one joins, if any. They can be replaced if the whole match is not.
	Parts []*Match
	// Smaller returns the next smaller reading of the same block, to be used if this match is refused: the same main
	// output from fewer nodes. It is nil, or returns nil, if there is none. It may be called until the graph changes.
	Smaller func() *Match
	// Attributes are the attributes of the main op.
	Attributes []*onnx.Attribute
	// Attention is the block of a match of Attention, nil for other matches.
	Attention *attention.Reading
}
