package golden

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Half returns the half-precision type of a model's weights, or Undefined. Scales of quantized weights do not count:
// they are of a half type in models of any type.
func Half(m *onnx.Model) onnx.DataType {
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			if v.Const.DataType.IsHalf() && !slices.ContainsFunc(v.Uses(), isScale) {
				return v.Const.DataType
			}
		}
	}
	return onnx.Undefined
}

// isScale reports whether a node reads a value besides the codes of weights.
func isScale(u onnx.Use) bool {
	op := fused.Lookup(u.Node.OpType)
	return u.Node.Domain == fused.Domain && op != nil && op.Family.Stored && u.Index != 0 &&
		!(op.Name == fused.LinearName && u.Index == fused.LinearBias)
}
