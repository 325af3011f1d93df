package onnx

// A Border is a number that passes into or out of the graphs of an If, Loop or Scan.
type Border struct {
	// Input and Output are the number's places among the node's inputs and outputs, or -1.
	Input, Output int
	// Inner are its values inside: an output of each branch, or the input and the output of a body.
	Inner []*Value
}

// Borders lists the numbers that pass into or out of the node's graphs, except the conditions and counts of loops.
func (n *Node) Borders() (list []Border) {
	graphs := n.Subgraphs()
	switch {
	case n.Is("If"):
		for i := range n.Outputs {
			b := Border{Input: -1, Output: i}
			for _, g := range graphs {
				if i < len(g.Outputs) {
					b.Inner = append(b.Inner, g.Outputs[i])
				}
			}
			list = append(list, b)
		}
	case n.Is("Loop") && len(graphs) == 1:
		list = graphs[0].borders(n, 2, len(n.Inputs), 1)
	case n.Is("Scan") && len(graphs) == 1:
		list = graphs[0].borders(n, 0, len(n.Inputs)-int(n.AttrInt("num_scan_inputs", 0)), 0)
	}
	return list
}

// borders lists the numbers of a body, whose states are the inputs between two places, and outputs from a place on.
func (g *Graph) borders(n *Node, from, to, out int) (list []Border) {
	for i := from; i < min(len(n.Inputs), len(g.Inputs)); i++ {
		b := Border{Input: i, Output: -1, Inner: []*Value{g.Inputs[i]}}
		if k := i - from; i < to && k+out < len(g.Outputs) {
			b.Output, b.Inner = k, append(b.Inner, g.Outputs[k+out])
		}
		list = append(list, b)
	}
	for k := max(to-from, 0); k+out < len(g.Outputs); k++ {
		list = append(list, Border{Input: -1, Output: k, Inner: []*Value{g.Outputs[k+out]}})
	}
	return list
}
