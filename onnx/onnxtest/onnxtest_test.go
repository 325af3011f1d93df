package onnxtest

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestBuilder builds a graph with every kind of argument and checks its text.
func TestBuilder(t *testing.T) {
	b := New(20)
	x := b.Input("x", onnx.Float, "batch", "", 8)
	parts := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
	y := b.Op("Clip", b.Op("Concat", parts, []*onnx.Attribute{onnx.IntAttr("axis", -1)}), nil, 6.0)
	y = b.Op("com.microsoft:Gelu", b.Op("Gather", b.Op("Unsqueeze", y, []int64{0}), 0))
	b.Output(y)
	var text strings.Builder
	for _, n := range b.Graph.Nodes {
		text.WriteString(n.Name + " " + n.Domain + ":" + n.OpType)
		for _, v := range n.Inputs {
			text.WriteString(" ")
			if v != nil {
				text.WriteString(v.Name)
			}
		}
		text.WriteString("\n")
	}
	want := `node_split :Split x
node_concat :Concat split split_1
node_clip :Clip concat  floats
node_unsqueeze :Unsqueeze clip ints
node_gather :Gather unsqueeze int
node_gelu com.microsoft:Gelu gather
`
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if c := b.Graph.Value("int").Const; len(c.Dims) != 0 || c.DataType != onnx.Int64 {
		t.Errorf("an int is %s%v", c.DataType, c.Dims)
	}
	if !y.IsOutput() {
		t.Error("Output adds none")
	}
}

// TestBody: the body of a function has no initializers.
func TestBody(t *testing.T) {
	f := onnx.NewFunction("local", "f", "", 20)
	b := &Builder{Graph: f.Body}
	v := b.Op("Add", f.Body.AddInput("x", onnx.Type{}), 1.0)
	if len(f.Body.Initializers()) != 0 || v.Producer.Inputs[1].Constant() == nil {
		t.Error("the constant is no Constant node")
	}
}

func TestUnknownArgument(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a bool is taken for an input")
		}
	}()
	New(20).Op("Not", true)
}
