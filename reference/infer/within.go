package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// Within finds the facts about a small graph to be inserted into the model: its inputs are the given values, in order,
// and its nodes may call the functions besides those of the model. The numbers of symbolic dimensions are those of f,
// and nothing is guessed: if they do not fit, neither does the graph.
func (f *Facts) Within(g *onnx.Graph, inputs []*onnx.Value, functions ...*onnx.Function) *Facts {
	all := append(slices.Clip(f.functions), functions...)
	an := newAnalysis(&onnx.Model{Functions: all}, symbolsFrom(usual, f.table))
	an.constants, an.Misfits = map[*onnx.Value]*rules.Fact{}, map[*onnx.Node][Worlds]bool{}
	an.slab = make([]rules.Fact, 2*len(g.Nodes))
	an.forget()
	fr := &rules.Frame{Opset: f.opset, Facts: make(map[*onnx.Value]*rules.Fact, len(inputs)+len(g.Nodes)),
		Eval: reference.NewForOpset(f.opset, all, reference.Options{})}
	for i, v := range g.Inputs {
		if i < len(inputs) {
			fr.Facts[v] = f.of(inputs[i])
		}
	}
	an.graph(g, fr)
	return &Facts{facts: fr.Facts, symbols: f.symbols, table: f.table, opset: f.opset, functions: all}
}
