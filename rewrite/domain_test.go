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
	model := func() (*onnxtest.Builder, *onnx.Value) {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, "batch", channels)
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", mean, 1e-5))
		b.Output(b.Op("Mul", b.Op("Div", x, root), vectorOf(b, channels)))
		return b, x
	}
	negated := func(name string, attributes, inputs []string) *onnx.Model {
		b, x := model()
		f := onnx.NewFunction(fused.Domain, name, "", 20)
		f.Attributes = attributes
		in := []*onnx.Value{x}
		for i, name := range inputs {
			v := f.Body.AddInput(name, onnx.Type{})
			if y := f.Body.NewValue("Y"); i == 0 {
				f.Body.AddNode("Neg", []*onnx.Value{v}, []*onnx.Value{y})
				f.Body.AddOutput(y)
			} else {
				in = append(in, vectorOf(b, channels))
			}
		}
		b.Model.Functions = append(b.Model.Functions, f)
		b.Model.ImportOpset(fused.Domain, 7)
		attrs := normAttributes(1e-5, 0)
		b.Output(b.Op(fused.Domain+":"+name, in, attrs[:len(attributes)]))
		return b.Model
	}
	names := []string{"axis", "epsilon", "scale_after_cast"}
	for name, c := range map[string]struct {
		m       *onnx.Model
		refused bool
	}{
		"another signature":  {negated("RMSNorm", nil, []string{"a"}), true},
		"the op's signature": {negated("RMSNorm", names, []string{"X", "scale"}), true},
		"no op's name":       {negated("Negative", nil, []string{"a"}), false},
	} {
		_, err := Apply(c.m, Request{AssumeAvailable: true})
		if (err != nil) != c.refused ||
			err != nil && !strings.Contains(err.Error(), "calls the function mojo.RMSNorm") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Quantize(c.m, nil, "", Request{}); (err != nil) != c.refused {
			t.Errorf("quantize, %s: %v", name, err)
		}
	}
	b, _ := model()
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
