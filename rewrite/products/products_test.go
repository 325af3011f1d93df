package products_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestMergedProducts merges the products for queries, keys and values, and for gate and up, in each block, with the
// same results.
func TestMergedProducts(t *testing.T) {
	m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	want := rewritetest.RunPadded(t, m)
	before := count(m, "MatMul")
	r := applytest.Apply(t, m, rewrite.Request{Merge: rewrite.MergeAll, StaticCache: &staticcache.Options{}}).Merged
	if r == nil || r.Products != 10 || r.Merged != 4 {
		t.Fatalf("reported %+v", r)
	}
	if n := count(m, "MatMul"); n > before-6 || count(m, "Split") != 4 {
		t.Errorf("%d products, %d before, and %d splits", n, before, count(m, "Split"))
	}
	rewritetest.CheckOrder(t, m)
	got := rewritetest.Run(t, m, rewritetest.DecoderInputs(t, m, 2, 5, 3, 12))["logits"]
	if d, scale := prove.Distance(want["logits"].F, got.F); d > 64*prove.Spacing(onnx.Float, scale) {
		t.Errorf("logits differ by %g", d)
	}
}

// TestProductsThatStay has weights with other readers, and weights of another height or type.
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
	r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Merge: rewrite.MergeAll})
	if err != nil {
		t.Fatal(err)
	}
	if text := r.Merged.Text(); !strings.HasPrefix(text, "none: ") {
		t.Errorf("reported %q", text)
	}
	if n := count(m, "MatMul"); n != 4 {
		t.Errorf("%d products, want 4", n)
	}
}

// count returns the number of nodes of an op in the graph.
func count(m *onnx.Model, op string) int {
	n := 0
	for _, node := range m.Graph.Nodes {
		if node.Is(op) {
			n++
		}
	}
	return n
}
