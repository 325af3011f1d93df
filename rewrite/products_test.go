package rewrite

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// TestMergedProducts has one product for queries, keys and values, and one for gate and up, in each block, which give
// what the products gave.
func TestMergedProducts(t *testing.T) {
	m := readModel(t, "llama-kv-dynamo-fp32")
	want := runPadded(t, m)
	before := count(m, "MatMul")
	r := apply(t, m, WithMergedProducts(), WithStaticCache(0)).Merged
	if r == nil || r.Products != 10 || r.Merged != 4 {
		t.Fatalf("reported %+v", r)
	}
	if n := count(m, "MatMul"); n > before-6 || count(m, "Split") != 4 {
		t.Errorf("%d products, %d before, and %d splits", n, before, count(m, "Split"))
	}
	checkOrderOf(t, m)
	got := runModel(t, m, decoderInputs(t, m, 2, 5, 3, 12))["logits"]
	if d, scale := prove.Distance(want["logits"].F, got.F); d > 64*prove.Spacing(onnx.Float, scale) {
		t.Errorf("logits differ by %g", d)
	}
}

// TestProductsThatStay has weights that something else reads, and such of another height or type.
func TestProductsThatStay(t *testing.T) {
	m := onnx.New(10, 18)
	g := m.Graph
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 3}, {Value: 2}}})
	weight := func(name string, dims ...int64) *onnx.Value {
		n := 1
		for _, d := range dims {
			n *= int(d)
		}
		return g.AddInitializer(onnx.NewFloat32s(name, dims, slices.Repeat([]float32{0.5}, n)))
	}
	product := func(a, b *onnx.Value) *onnx.Value {
		y := g.NewValue("y")
		g.AddNode("MatMul", []*onnx.Value{a, b}, []*onnx.Value{y})
		y.SetType(onnx.Type{DataType: onnx.Float})
		g.AddOutput(y)
		return y
	}
	shared := weight("shared", 2, 4)
	product(x, shared)
	product(product(x, weight("alone", 2, 2)), shared)
	product(x, weight("stacked", 5, 2, 4))
	if _, err := ApplyDefaultKernels(m, Auto, AssumeAvailable(), WithMergedProducts()); err != nil {
		t.Fatal(err)
	}
	if n := count(m, "MatMul"); n != 4 {
		t.Errorf("%d products, want 4", n)
	}
}

// count returns how many nodes of an op there are in the graph.
func count(m *onnx.Model, op string) int {
	n := 0
	for _, node := range m.Graph.Nodes {
		if node.Is(op) {
			n++
		}
	}
	return n
}

// TestMergesAreProven leaves products whose merged weights stand in another order, and says so.
func TestMergesAreProven(t *testing.T) {
	m := readModel(t, "llama-kv-dynamo-fp32")
	plan := planned(t, m, WithMergedProducts())
	a := plan.applier
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
	a.prover = a.newProver()
	if err := a.provenMerge(group, a.merge); err != nil {
		t.Error(err)
	}
	if m.Graph.Text() != before {
		t.Error("the proof changed the model")
	}
}
