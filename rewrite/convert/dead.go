package convert

import "github.com/mojo-patch/mojo-patch/onnx"

// removeDead removes the nodes of a graph and its subgraphs whose outputs nothing reads, and the initializers that
// nothing reads.
func removeDead(root *onnx.Graph) error {
	for again := true; again; {
		again = false
		var graphs []*onnx.Graph
		root.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
		for i := len(graphs) - 1; i >= 0; i-- { // inner ones first: they read the values of outer ones
			dead := deadIn(graphs[i])
			if len(dead) == 0 {
				continue
			}
			if err := graphs[i].RemoveNodes(dead); err != nil {
				return err
			}
			again = true
		}
	}
	root.Walk(func(g *onnx.Graph) {
		all := map[*onnx.Value]bool{}
		for _, v := range g.Initializers() {
			all[v] = true
		}
		g.RemoveUnusedInitializers(all)
	})
	return nil
}

// deadIn finds the nodes of the graph that no output of it depends on.
func deadIn(g *onnx.Graph) map[*onnx.Node]bool {
	dead := map[*onnx.Node]bool{}
	gone := map[*onnx.Value]int{} // readings by dead nodes
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		read := false
		for _, v := range n.Outputs {
			read = read || v != nil && (v.IsOutput() || len(v.Uses()) > gone[v])
		}
		if read {
			continue
		}
		dead[n] = true
		for _, v := range n.Inputs {
			if v != nil {
				gone[v]++
			}
		}
	}
	return dead
}
