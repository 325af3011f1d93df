package trace

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// standardBias is the input of the standard's Attention that is added to the scores.
const standardBias = 3

// moves are the ops, besides those that only move elements (onnx.Node.MovesElements), that keep a number far below the
// others.
var moves = onnx.Words("Add Sub Mul Where Pad Tile Trilu ScatterND ScatterElements")

// hiddenValues finds the values of a graph in which elements far below the others only become zeros of an exponential,
// clipped or not: values that a Softmax reads, whole or decomposed, directly or through sums, masks of zeros and ones,
// and moves of elements. outputs marks the graph outputs that are hidden by their readers.
func hiddenValues(g *onnx.Graph, outputs []bool) map[*onnx.Value]bool {
	hidden := map[*onnx.Value]bool{}
	hides := func(u onnx.Use) bool {
		switch n := u.Node; {
		case n.Is("Softmax"), n.Is("Exp"), n.Is("ReduceMax"), n.Is("Shape"), n.Is("Size"), n.Is("Equal"), n.Is("IsInf"),
			n.Is("IsNaN"):
			return true
		case n.OpType == fused.AttentionName:
			return u.Index == fused.AttentionBias && n.Domain == fused.Domain ||
				u.Index == standardBias && onnx.IsStandardDomain(n.Domain)
		case n.Graph == g && (moves[n.OpType] && onnx.IsStandardDomain(n.Domain) || n.MovesElements()) &&
			!(n.Is("Sub") && u.Index == 1):
			return !slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return v != nil && !hidden[v] })
		}
		return false
	}
	find := func(v *onnx.Value) {
		if v == nil || v.IsOutput() && !givesHidden(g, v, outputs) {
			return
		}
		hidden[v] = (v.IsOutput() || len(v.Uses()) > 0) &&
			!slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return !hides(u) })
	}
	for _, n := range slices.Backward(g.Nodes) {
		for _, v := range n.Outputs {
			find(v)
		}
	}
	for _, v := range g.Inputs {
		find(v)
	}
	return hidden
}

// givesHidden reports whether all graph outputs that hold the value are hidden.
func givesHidden(g *onnx.Graph, v *onnx.Value, outputs []bool) bool {
	for i, o := range g.Outputs {
		if o == v && (i >= len(outputs) || !outputs[i]) {
			return false
		}
	}
	return true
}
