package onnx

import (
	"math"
	"strings"
	"testing"
)

func TestFunctionText(t *testing.T) {
	f := NewFunction("example", "Scaled", "v2", 17)
	f.Attributes = []string{"alpha"}
	f.Defaults = []*Attribute{FloatAttr("epsilon", 1e-5)}
	g := f.Body
	in := func(name string) *Value {
		v := g.NewValue(name)
		v.IsInput = true
		g.Inputs = append(g.Inputs, v)
		return v
	}
	x, scale := in("X"), in("the scale")
	n, c, y := g.NewValue("n"), g.NewValue("c"), g.NewValue("Y")
	g.AddNode("Constant", nil, []*Value{c}, TensorAttr("value", NewInt64s("", []int64{-1, 2})))
	g.AddNode("Elu", []*Value{x}, []*Value{n}, RefAttr("alpha", AttrFloat, "alpha"), IntsAttr("axes", []int64{0, 1}),
		FloatAttr("f", 2))
	custom := g.AddNode("Clip", []*Value{n, nil, scale}, []*Value{y}, StringAttr("mode", "a\"b"))
	custom.Domain, custom.Overload = "local", "o"
	g.AddOutput(y)
	want := `<domain: "example", overload: "v2", opset_import: ["": 17]>
Scaled<alpha, epsilon=1e-05>(X, "the scale") => (Y) {
  c = Constant<value=int64[2] {-1, 2}>()
  n = Elu<alpha=@alpha, axes=[0, 1], f=2.0>(X)
  Y = local.Clip:o<mode="a\"b">(n, "", "the scale")
}
`
	if got := f.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGraphText(t *testing.T) {
	m := nestedModel(t)
	g := m.Graph
	g.Inputs[0].SetType(Type{DataType: BFloat16, HasShape: true,
		Dims: []Dim{{Value: 2}, {Value: -1, Param: "seq"}, {Value: -1}}})
	g.AddInitializer(NewFloat32s("w", []int64{2}, []float32{1, float32(math.Inf(1))}))
	g.AddInitializer(NewFloat32s("large", []int64{3, 4}, make([]float32, 12)))
	half, err := NewTensor("half", Float16, []int64{3}, []byte{0, 0x3c, 1, 0, 0, 0xfc})
	must(t, err)
	g.AddInitializer(half)
	want := `graph g (bfloat16[2, seq, ?] x) => (z) {
  w = float32[2] {1.0, +Inf}
  large = float32[3, 4]
  half = float16[3] {1.0, 5.9604645e-08, -Inf}
  a = Abs(x)
  b = Neg(a)
  c = If<then_branch=graph body () => (k, b) {
    i = Add(a, x)
    k = Mul(i, i)
  }>(x)
  z = Relu(x)
  d = Mul(c, c)
}
`
	if got := g.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTextOfEverything prints a model with every kind of attribute and value.
func TestTextOfEverything(t *testing.T) {
	m, err := Read(writeMessage(t, everything()))
	must(t, err)
	defer m.Close()
	text := m.Graph.Text() + m.Functions[0].Text()
	for _, want := range []string{"local.All:o<", "no_type=3", `empty_s=""`, "tp=type_proto",
		`typed_string = string[5] {"", "a", "\xff", "", ""}`, "alpha=@alpha"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
