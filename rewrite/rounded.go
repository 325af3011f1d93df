package rewrite

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// roundsActivations reports whether a node rounds what the model computes to 8 bits, by a scale that it takes from it.
// A change in the last place then moves an element by a whole step, here and there.
func roundsActivations(n *onnx.Node) bool {
	switch n.OpType {
	case "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM":
		return true
	case "MatMulNBits", "QMoE":
		return n.AttrInt("accuracy_level", 0) == 4
	}
	return false
}

func countRounded(m *onnx.Model) (count int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if roundsActivations(n) {
				count++
			}
		}
	}
	return count
}

// roundedText says what it means for comparisons that activations are rounded; empty where none are.
func (r *Report) roundedText() string {
	if r.Rounded == 0 {
		return ""
	}
	return fmt.Sprintf("activations        rounded to 8 bits by %s: outputs move when a last digit does, compare with "+
		"diff --sensitivity\n", english.Counted(r.Rounded, "node"))
}
