package quantized

import "github.com/mojo-patch/mojo-patch/onnx"

// For the tests, which import package rewrite and so stand outside of this one.
var (
	SameFloats        = sameFloats
	StoredCodes       = storedCodes
	ReadAlike         = readAlike
	SiteOf            = siteOf
	RoundsActivations = roundsActivations
)

// CompareChanged compares the floats that a view has for a node, after a change, with what the node makes.
func CompareChanged(g *onnx.Graph, n *onnx.Node, change func(floats *onnx.Tensor) *onnx.Tensor) error {
	v := NewView(nil, "")
	if err := v.add(g, n); err != nil {
		return err
	}
	f := v.nodes[0]
	f.floats.Const = change(f.floats.Const)
	return f.compare()
}
