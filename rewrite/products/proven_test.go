package products

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestMergesAreProven: products whose merged weights are in another order stay and are reported.
func TestMergesAreProven(t *testing.T) {
	m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	a := &merger{Run: &pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m)}, prover: new(prove.Prover)}
	var group []*onnx.Node
	for _, n := range m.Graph.Nodes {
		if isProjection(n) && (group == nil || n.Input(0) == group[0].Input(0) && floatKind(n) == floatKind(group[0])) {
			group = append(group, n)
		}
	}
	if len(group) < 2 {
		t.Fatalf("%d products of one value", len(group))
	}
	before := m.Graph.Text()
	turned := func(g *onnx.Graph, group []*onnx.Node) error {
		group = slices.Clone(group)
		for i, j := 0, len(group)-1; i < j; i, j = i+1, j-1 {
			a, b := group[i].Outputs[0], group[j].Outputs[0]
			group[i].TakeOutput(0, b)
			group[j].TakeOutput(0, a)
		}
		return a.merge(g, group)
	}
	if err := a.provenMerge(group, turned); err == nil {
		t.Error("products in another order are taken for the same")
	}
	if err := a.provenMerge(group, a.merge); err == nil {
		t.Error("equal claims are proven once: the second one fails as the first did")
	}
	a.prover = new(prove.Prover)
	if err := a.provenMerge(group, a.merge); err != nil {
		t.Error(err)
	}
	if m.Graph.Text() != before {
		t.Error("the proof changed the model")
	}
}
