package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A small graph to be inserted into a model has the same facts as after the insertion.
func TestWithin(t *testing.T) {
	m := onnx.New(10, 20)
	typ := onnx.Type{DataType: onnx.Float16, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "n"}, {Value: 8}}}
	x := m.Graph.AddInput("x", typ)
	f := Analyze(m)
	if f.Opset() != 20 {
		t.Errorf("opset %d", f.Opset())
	}
	double := onnx.NewFunction("my", "Double", "", 20)
	v, w := double.Body.AddInput("v", onnx.Type{}), double.Body.NewValue("w")
	double.Body.AddNode("Add", []value{v, v}, []value{w})
	double.Body.AddOutput(w)

	body := onnx.NewFunction("", "", "", 20).Body
	a := body.AddInput("a", onnx.Type{})
	axes, u, y := body.NewValue("axes"), body.NewValue("u"), body.NewValue("y")
	body.AddNode("Constant", nil, []value{axes}, onnx.IntsAttr("value_ints", []int64{1}))
	body.AddNode("Unsqueeze", []value{a, axes}, []value{u})
	body.AddNode("Double", []value{u}, []value{y}).Domain = "my"
	body.AddOutput(y)

	g := f.Within(body, []value{x}, double)
	got, ok := g.Type(y)
	if !ok || got.DataType != onnx.Float16 || len(got.Dims) != 3 || got.Dims[0].Param != "n" ||
		got.Dims[1].Value != 1 || got.Dims[2].Value != 8 {
		t.Errorf("%+v %v", got, ok)
	}
	if !g.SameShape(a, a) || g.DataType(a) != onnx.Float16 {
		t.Error("the input has not the facts of the value that it stands for")
	}
	if _, known := f.Rank(y); known {
		t.Error("the facts of the model changed")
	}
}
