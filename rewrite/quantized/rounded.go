package quantized

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// roundsActivations reports whether a node rounds activations to 8 bits with a scale computed from them. A change in
// the last place can then move an element by a whole step.
func roundsActivations(n *onnx.Node) bool {
	switch n.OpType {
	case "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM":
		return true
	case "MatMulNBits", "QMoE":
		return n.AttrInt("accuracy_level", 0) == 4
	}
	return false
}

// CountRounded counts the nodes of a model that round activations to 8 bits at run time, with a scale computed from
// them. The outputs of such a model move by whole steps if a last digit changes.
func CountRounded(m *onnx.Model) (count int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if roundsActivations(n) {
				count++
			}
		}
	}
	return count
}

// RoundedByRuntime counts the products with constant weights after DequantizeLinear for which onnxruntime rounds
// activations to 8 bits, although no node says so. It fuses both into MatMulNBits, with accuracy level 4 unless the
// session sets another one.
func RoundedByRuntime(m *onnx.Model) (count int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if n.Is("MatMul") || n.Is("Gemm") && n.AttrInt("transB", 0) == 0 && n.AttrInt("transA", 0) == 0 {
				x, w := n.Input(0), n.Input(1)
				quantized := x != nil && x.Producer != nil && x.Producer.Is("DequantizeLinear") // activations too
				if w != nil && w.Producer != nil && !quantized && becomesNBits(w.Producer) {
					count++
				}
			}
		}
	}
	return count
}

// becomesNBits reports whether onnxruntime fuses a DequantizeLinear and its product into MatMulNBits: it does so for
// constant matrices with blocks down their columns, a scale per column, or one scale.
func becomesNBits(n *onnx.Node) bool {
	if !n.Is("DequantizeLinear") || n.Input(0) == nil || n.Input(1) == nil {
		return false
	}
	w, scales := n.Input(0).Constant(), n.Input(1).Constant()
	if w == nil || scales == nil || len(w.Dims) != 2 {
		return false
	}
	axis, block := n.AttrInt("axis", 1), n.AttrInt("block_size", 0)
	if axis < 0 {
		axis += 2
	}
	if block > 0 {
		return axis == 0 && block >= 16 && block&(block-1) == 0
	}
	return len(scales.Dims) == 0 || axis == 1
}
