package edit

import "github.com/mojo-patch/mojo-patch/onnx"

// An Editor names the origin of nodes that are added to a model.
type Editor struct {
	Model *onnx.Model
	// Version is the version of the tool, for the metadata of new nodes.
	Version string
}

// AddNode appends a node of the standard domain that computes out for a rule.
func (e *Editor) AddNode(c *Change, g *onnx.Graph, rule, op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Node {
	n := c.AddNode(g, op, inputs, []*onnx.Value{out})
	n.Name, n.Metadata = out.Name+"_"+op, e.Origin(rule)
	return n
}
