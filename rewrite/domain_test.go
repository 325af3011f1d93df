package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestOwnFunctions refuses models whose functions kernels would shadow, and accepts models that it patched, with and
// without metadata.
func TestOwnFunctions(t *testing.T) {
	model := func() (builder, value) {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, "batch", channels)
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", mean, 1e-5))
		b.Output(b.Op("Mul", b.Op("Div", x, root), vectorOf(b, channels)))
		return b, x
	}
	b, x := model()
	f := onnx.NewFunction(fused.Domain, "RMSNorm", "", 20)
	f.Body.AddOutput((&onnxtest.Builder{Graph: f.Body}).Op("Neg", f.Body.AddInput("a", onnx.Type{})))
	b.Model.Functions = append(b.Model.Functions, f)
	b.Model.ImportOpset(fused.Domain, 7)
	b.Output(b.Op("mojo:RMSNorm", x))
	const want = "calls the function mojo.RMSNorm"
	if _, err := Apply(b.Model, Request{AssumeAvailable: true}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a function that is no norm: %v", err)
	}
	if _, err := Quantize(b.Model, nil, "", Request{}); err == nil {
		t.Error("quantize takes a function that is no norm")
	}
	b, _ = model()
	if r := apply(t, b.Model); !r.Changed {
		t.Fatal("not patched")
	}
	apply(t, b.Model)
	for _, n := range b.Model.Graph.Nodes {
		n.Metadata = nil
	}
	apply(t, b.Model)
	i := slices.IndexFunc(b.Model.Functions, func(f *onnx.Function) bool { return f.Name == "RMSNorm" })
	n := b.Model.Functions[i].Body.Nodes
	n[slices.IndexFunc(n, func(n *onnx.Node) bool { return n.OpType == "ReduceMean" })].OpType = "ReduceMax"
	if _, err := Apply(b.Model, Request{AssumeAvailable: true}); err == nil {
		t.Error("a function that is no definition of the op is taken")
	}
}
