package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// MinIRVersion is the first IR version with function overloads and metadata on nodes. Models with fused ops need it.
const MinIRVersion = 10

// Editor adds nodes and definitions of fused ops to a model, and names where they come from.
type Editor struct {
	Model *onnx.Model
	// Version is that of the tool, for the metadata of new nodes.
	Version string
}

// AddNode appends a node of the standard that computes out for a rule; Graph.Sort puts it in its place.
func (e *Editor) AddNode(g *onnx.Graph, rule, op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Node {
	n := g.AddNode(op, inputs, []*onnx.Value{out})
	n.Name, n.Metadata = out.Name+"_"+op, e.Origin(rule)
	return n
}

// AddFunction adds a definition to the model, unless it has it.
func (e *Editor) AddFunction(f *onnx.Function) {
	if e.Model.Function(f.Domain, f.Name, f.Overload) == nil {
		e.Model.Functions = append(e.Model.Functions, f)
	}
}

// DropDefinitions removes the definitions of a fused op that nothing calls anymore.
func (e *Editor) DropDefinitions(op string) {
	called := map[string]bool{}
	for _, g := range e.Model.Graphs() {
		for _, n := range g.Nodes {
			called[n.Domain+"."+n.OpType+"."+n.Overload] = true
		}
	}
	e.Model.Functions = slices.DeleteFunc(e.Model.Functions, func(f *onnx.Function) bool {
		return f.Domain == fused.Domain && f.Name == op && !called[FunctionName(f)]
	})
}

// FunctionName is the full name of a definition, which calls of it have in their parts.
func FunctionName(f *onnx.Function) string { return f.Domain + "." + f.Name + "." + f.Overload }
