package parameters

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attentionOfSinks returns the node through which an attention reads its sinks, a number per head: a Concat with the
// scores, or the fused op. It returns nil for values that are not sinks. Exporters fold the reshape of the parameter,
// so no node with the parameter's name reads it.
func attentionOfSinks(v *onnx.Value) *onnx.Node {
	if len(Squeezed(v.Const.Dims)) != 1 || !v.Const.DataType.IsFloat() {
		return nil
	}
	for w := range onnx.Reach(func(v *onnx.Value) (list []*onnx.Value) {
		for _, u := range v.Uses() {
			if n := u.Node; u.Index == 0 && (isShaping(n) || n.Is("Cast") || n.Is("Identity") || n.Is("Transpose")) {
				list = append(list, n.Outputs...)
			}
		}
		return list
	}, v) {
		for _, u := range w.Uses() {
			n := u.Node
			if n.Domain == fused.Domain && n.OpType == fused.AttentionName && u.Index == fused.AttentionSink ||
				n.Is("Concat") && u.Index == len(n.Inputs)-1 && isScores(n.Input(0)) {
				return n
			}
		}
	}
	return nil
}

// isScores reports whether a value is computed from one product of two computed values.
func isScores(v *onnx.Value) bool {
	products, _ := before(v)
	if len(products) != 1 {
		return false
	}
	w, _ := weightOf(products[0])
	return w == nil
}
