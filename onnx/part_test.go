package onnx_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestPart cuts out the second of three nodes, with its constant and its branches.
func TestPart(t *testing.T) {
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, "n")
	y := b.Op("Exp", x)
	branch := b.Graph.NewSubgraph("branch")
	inner := branch.NewValue("inner")
	branch.AddNode("Neg", []*onnx.Value{y}, []*onnx.Value{inner})
	branch.AddOutput(inner)
	c := b.Graph.AddInitializer(onnx.NewFloat32s("c", []int64{1}, []float32{3}))
	condition := b.Input("condition", onnx.Bool)
	z := b.Op("If", condition, onnx.GraphAttr("then_branch", branch), onnx.GraphAttr("else_branch", branch))
	w := b.Op("Mul", z, c)
	b.Output(w)

	nodes := b.Graph.Nodes
	if reads := nodes[1].Reads(); len(reads) != 2 || reads[0] != condition || reads[1] != y {
		t.Errorf("the If reads %d values", len(reads))
	}
	port := func(v *onnx.Value, dt onnx.DataType) onnx.Port { return onnx.Port{Value: v, Type: onnxtest.Type(dt)} }
	ports := []onnx.Port{port(y, onnx.Float), port(condition, onnx.Bool)}
	part, err := b.Model.Part(nodes[1:], ports, []*onnx.Value{z, w})
	if err != nil {
		t.Fatal(err)
	}
	text := part.Graph.Text()
	for _, want := range []string{y.Name, "condition", w.Name + " = Mul(" + z.Name + ", c)", "Neg(" + y.Name + ")"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Exp") || len(part.Graph.Inputs) != 2 || len(part.Graph.Initializers()) != 1 {
		t.Errorf("the part is\n%s", text)
	}
	if len(b.Graph.Nodes) != 3 || len(y.Uses()) != 1 || y.Uses()[0].Node.Graph != branch {
		t.Error("the model is another one now")
	}
	_, err = b.Model.Part(nodes[2:], nil, nil)
	if err == nil || !strings.Contains(err.Error(), "not an input of the part") {
		t.Errorf("a value that nothing makes: %v", err)
	}
	if _, err := b.Model.Part(nodes[1:], ports, []*onnx.Value{x}); err == nil {
		t.Error("an output that nothing makes is taken")
	}
}
