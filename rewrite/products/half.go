package products

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// isHalfProjection is isProjection for mojo.HalfLinear.
func isHalfProjection(n *onnx.Node) bool {
	return n.Domain == fused.Domain && n.OpType == fused.HalfLinearName &&
		!slices.ContainsFunc(n.Inputs[1:], func(w *onnx.Value) bool {
			return !w.IsConstant() || w.Producer != nil || len(w.Uses()) != 1 || w.IsOutput() || w.Graph != n.Graph
		})
}

// inputAxis returns the axis of a product's weight that is summed over.
func inputAxis(n *onnx.Node) int {
	if isHalfProjection(n) && n.AttrString(fused.AttrLayout, "") == "out_in" || transposeOf(n) != nil {
		return 1
	}
	return 0
}

// halfKind is equal for products whose weights can be concatenated.
func halfKind(n *onnx.Node) string {
	w := n.Input(fused.HalfLinearW).Const
	return fmt.Sprint(n.Overload, onnx.AttributesKey(n.Attributes), w.DataType, w.Dims[inputAxis(n)], len(n.Inputs))
}

// mergeHalf replaces several mojo.HalfLinear of one value by one and a Split.
func (m *merger) mergeHalf(g *onnx.Graph, group []*onnx.Node) error {
	first := group[0]
	outputs := 1 - inputAxis(first)
	var columns []int64
	for _, n := range group {
		columns = append(columns, n.Input(fused.HalfLinearW).Const.Dims[outputs])
	}
	product, err := m.together(g, group, map[int]int{fused.HalfLinearW: outputs})
	if err != nil {
		return err
	}
	m.split(g, product, columns, group)
	return nil
}
