package quantized

import "github.com/mojo-patch/mojo-patch/onnx"

// These serve the tests, which import package rewrite and therefore are in another package.
var (
	SameFloats        = sameFloats
	StoredCodes       = storedCodes
	ReadAlike         = readAlike
	SiteOf            = siteOf
	RoundsActivations = roundsActivations
)

// CompareChanged compares the floats of a view for a node, after a change, with the node's output.
func CompareChanged(g *onnx.Graph, n *onnx.Node, change func(floats *onnx.Tensor) *onnx.Tensor) error {
	v := NewView(nil, "")
	if err := v.add(g, n); err != nil {
		return err
	}
	f := v.nodes[0]
	f.floats.Const = change(f.floats.Const)
	return f.compare()
}
