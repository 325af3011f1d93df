package rewrite

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// oneBroadcast has the Add, Sub, Mul and Div nodes of the scopes broadcast one of their inputs at most, by an Expand of the first where
// both may be, and gives how many got one. onnxruntime's CANN provider (1.24.4 was tried) computes such a node of its second input
// alone, which is what angles of a rotary embedding are made by: it copies both inputs, broadcast, to the same memory.
func oneBroadcast(scopes []*scope, facts *infer.Facts) int {
	count := 0
	for _, s := range scopes {
		before := map[*onnx.Node][]*onnx.Node{}
		for _, n := range s.graph.Nodes {
			if !n.Is("Add") && !n.Is("Sub") && !n.Is("Mul") && !n.Is("Div") {
				continue
			}
			a, b := n.Input(0), n.Input(1)
			if a == nil || b == nil || facts.DataType(a) == onnx.BFloat16 || !bothBroadcast(facts, a, b) {
				continue
			}
			shape, wide := s.graph.NewValue(b.Name+"_shape"), s.graph.NewValue(a.Name+"_expanded")
			sizes := s.graph.NewNode("Shape", []*onnx.Value{b})
			sizes.TakeOutput(0, shape)
			expand := s.graph.NewNode("Expand", []*onnx.Value{a, shape})
			expand.TakeOutput(0, wide)
			n.SetInput(0, wide)
			before[n] = []*onnx.Node{sizes, expand}
		}
		count += len(before)
		s.graph.InsertAt(before)
	}
	return count
}

// bothBroadcast says whether each of two inputs may have a shape other than that of the result. What is not known may be.
func bothBroadcast(facts *infer.Facts, a, b *onnx.Value) bool {
	m, okA := facts.Rank(a)
	n, okB := facts.Rank(b)
	if !okA || !okB {
		return !scalar(facts, a) && !scalar(facts, b)
	}
	growsA, growsB := m < n, n < m
	for i := 1; i <= min(m, n); i++ {
		x, y := sizes(facts, a, m-i), sizes(facts, b, n-i)
		for w := range x {
			if x[w] >= 0 && x[w] == y[w] {
				continue
			}
			growsA = growsA || x[w] == 1 || x[w] < 0 || y[w] != 1
			growsB = growsB || y[w] == 1 || y[w] < 0 || x[w] != 1
		}
	}
	return growsA && growsB
}

func scalar(facts *infer.Facts, v *onnx.Value) bool {
	rank, ok := facts.Rank(v)
	return ok && rank == 0
}

// sizes gives a dimension in every world, -1 where it is not known.
func sizes(facts *infer.Facts, v *onnx.Value, axis int) (list [infer.Worlds]int64) {
	for w := range list {
		list[w] = facts.Size(v, w, axis)
	}
	return list
}
