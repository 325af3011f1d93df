package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestType(t *testing.T) {
	m := onnx.New(10, 20)
	g := m.Graph
	input := func(name string, dims ...onnx.Dim) value {
		return g.AddInput(name, onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims})
	}
	sym := func(name string) onnx.Dim { return onnx.Dim{Value: -1, Param: name} }
	x := input("x", sym("batch"), sym("seq"), onnx.Dim{Value: 8})
	mask := input("mask", sym("batch"), sym("other"), onnx.Dim{Value: 1})
	neg, masked, joined := g.NewValue("neg"), g.NewValue("masked"), g.NewValue("joined")
	g.AddNode("Neg", []value{x}, []value{neg})
	g.AddNode("Concat", []value{x, x}, []value{joined}, onnx.IntAttr("axis", 1))
	for _, v := range []value{neg, joined} {
		g.AddOutput(v)
	}
	check := func(f *Facts, v value, want string) {
		t.Helper()
		got, ok := f.Type(v)
		if !ok || got.String() != want {
			t.Errorf("%s is %v, want %s", v.Name, got, want)
		}
	}
	f := Analyze(m)
	check(f, neg, "float32[batch, seq, 8]")
	check(f, joined, "float32[batch, ?, 8]") // twice seq is not a symbol

	// The Add makes seq and other one number here, but a runtime may broadcast other: neither name is certain.
	g.AddNode("Add", []value{x, mask}, []value{masked})
	g.AddOutput(masked)
	check(Analyze(m), masked, "float32[batch, ?, 8]")
}
