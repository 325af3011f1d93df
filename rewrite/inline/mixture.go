package inline

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A mixture of experts is analyzed as a whole, with its weights. A function that chooses the experts, or that
// multiplies between the choice and the sum, contains part of it.

func isChoice(n *onnx.Node) bool { return n.Is("TopK") || n.Is("ArgMax") }

// holds reports whether a graph or a subgraph contains such a node.
func holds(g *onnx.Graph, is func(*onnx.Node) bool) bool {
	found := false
	g.Walk(func(g *onnx.Graph) { found = found || slices.ContainsFunc(g.Nodes, is) })
	return found
}

// calledForExperts lists the given functions, which multiply, that a graph calls between a choice and the first value
// that combines everything that depends on the choice.
func calledForExperts(g *onnx.Graph, functions map[functionID]*onnx.Function) []*onnx.Function {
	var list []*onnx.Function
	if len(functions) == 0 || !slices.ContainsFunc(g.Nodes, isChoice) {
		return nil
	}
	reads, last := readsOf(g)
	for i, choice := range g.Nodes {
		if !isChoice(choice) {
			continue
		}
		before := madeBefore(choice, nil, reads)
		open := map[*onnx.Value]bool{} // values that depend on the choice and have later readers
		for j, n := range g.Nodes[i:] {
			if j > 0 && !slices.ContainsFunc(reads[n], func(v *onnx.Value) bool { return open[v] }) {
				continue
			}
			for _, v := range n.Outputs {
				open[v] = true
			}
			for v := range open {
				if last[v] <= i+j {
					delete(open, v)
				}
			}
			if len(open) > 1 {
				continue
			}
			multiplied := false
			for m := range madeBefore(n, before, reads) {
				m.Walk(func(m *onnx.Node) {
					f := functions[idOf(m.Domain, m.OpType, m.Overload)]
					if f != nil && !slices.Contains(list, f) {
						list = append(list, f)
					}
					multiplied = multiplied || f != nil || m.IsProduct()
				})
			}
			if multiplied || len(open) == 0 {
				break
			}
		}
	}
	return list
}

// readsOf returns the values of a graph that each node reads, also in its subgraphs, and the last reader of each value.
func readsOf(g *onnx.Graph) (reads map[*onnx.Node][]*onnx.Value, last map[*onnx.Value]int) {
	reads, last = map[*onnx.Node][]*onnx.Value{}, map[*onnx.Value]int{}
	for i, n := range g.Nodes {
		n.Walk(func(m *onnx.Node) {
			for _, v := range m.Inputs {
				if v != nil && v.Graph == g {
					reads[n] = append(reads[n], v)
					last[v] = i
				}
			}
		})
	}
	return reads, last
}

// madeBefore returns a node and the nodes of its graph that it depends on, without those in without.
func madeBefore(n *onnx.Node, without map[*onnx.Node]bool, reads map[*onnx.Node][]*onnx.Value) map[*onnx.Node]bool {
	return onnx.SetOf(onnx.Reach(func(m *onnx.Node) (list []*onnx.Node) {
		for _, v := range reads[m] {
			if !without[v.Producer] {
				list = append(list, v.Producer)
			}
		}
		return list
	}, n))
}
