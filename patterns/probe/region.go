package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Region is the nodes between operands and a result.
type Region struct {
	Operands []*onnx.Value // data that the result is computed from
	Result   *onnx.Value
	Nodes    []*onnx.Node  // between the operands and the result
	Sides    []*onnx.Value // other values that the nodes read: weights, numbers, shapes, masks
}

// Has reports whether the region has the node.
func (r *Region) Has(n *onnx.Node) bool { return slices.Contains(r.Nodes, n) }
