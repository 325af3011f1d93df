package golden_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestWithOwnPasts runs cases of a model that keeps keys and values on one that keeps narrower values.
func TestWithOwnPasts(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"past_k", onnx.Float, "b =1 p =3"})
	present := m.Graph.NewValue("present_k")
	present.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "b"},
		{Value: 1}, {Value: -1, Param: "l"}, {Value: 3}}})
	m.Graph.AddNode("Identity", []*onnx.Value{m.Graph.Value("past_k")}, []*onnx.Value{present})
	m.Graph.AddOutput(present)
	ids := onnx.NewInt64s("input_ids", []int64{1, 2})
	ids.Dims = []int64{2, 1}
	named := func(name string, x *onnx.Tensor) *onnx.Tensor {
		y := *x
		y.Name = name
		return &y
	}
	k, v, logits := counted("present_k", 2, 4, 1, 2), counted("present_v", 2, 4, 1, 1), counted("embedded", 2, 1, 1)
	first := golden.Case{Inputs: []*onnx.Tensor{ids, counted("past_k", 2, 4, 0, 2), counted("past_v", 2, 4, 0, 1)},
		Outputs: []*onnx.Tensor{logits, k, v}}
	second := golden.Case{Inputs: []*onnx.Tensor{ids, named("past_k", k), named("past_v", v)},
		Outputs: []*onnx.Tensor{logits, counted("present_k", 2, 4, 2, 2), counted("present_v", 2, 4, 2, 1)}}
	cases, err := golden.WithOwnPasts(m, []golden.Case{first, second})
	if err != nil {
		t.Fatal(err)
	}
	if x := cases[0].Input("past_k"); x == nil || !slices.Equal(x.Dims, []int64{2, 1, 0, 3}) ||
		len(cases[0].Inputs) != 2 {
		t.Errorf("a past without tokens is %v", cases[0].Inputs)
	}
	if got := cases[1]; len(got.Inputs) != 1 || len(got.Follows) != 1 ||
		got.Follows[0] != (golden.Follow{Input: "past_k", Output: "present_k", Tokens: 1}) {
		t.Errorf("a past that was given before is %v, %v", got.Inputs, got.Follows)
	}
	for i, c := range cases {
		if len(c.Outputs) != 1 || c.Outputs[0] != logits {
			t.Errorf("case %d: outputs are %v", i, c.Outputs)
		}
		if err := golden.FitInputs(m, c); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if again, err := golden.WithOwnPasts(m, cases); err != nil || len(again[1].Follows) != 1 ||
		len(again[1].Inputs) != 1 {
		t.Errorf("a second time: %v, error %v", again, err)
	}
	cases[0].Outputs = []*onnx.Tensor{counted("present_k", 2, 1, 1, 3)}
	followed, err := cases[1].Followed(cases[:1])
	if err != nil || len(followed.Inputs) != 2 || !slices.Equal(followed.Input("past_k").Dims, []int64{2, 1, 1, 3}) ||
		cases[0].Outputs[0].Name != "present_k" {
		t.Errorf("followed by %v, error %v", followed.Inputs, err)
	}
	if _, err := cases[1].Followed([]golden.Case{{}}); err == nil ||
		!strings.Contains(err.Error(), `did not compute "present_k"`) {
		t.Errorf("a case without outputs: %v", err)
	}
	if _, err := golden.WithOwnPasts(m, []golden.Case{second}); err == nil ||
		!strings.Contains(err.Error(), "start with a case whose past has no tokens") {
		t.Errorf("a past from nowhere: %v", err)
	}
	foreign := golden.Case{Inputs: []*onnx.Tensor{onnx.NewInt64s("positions", []int64{1})}}
	if _, err := golden.WithOwnPasts(m, []golden.Case{foreign}); err == nil ||
		!strings.Contains(err.Error(), `has no input "positions"`) {
		t.Errorf("an input that the model lacks: %v", err)
	}
	fitting := golden.Case{Inputs: []*onnx.Tensor{ids, counted("past_k", 2, 1, 5, 3)}, Outputs: []*onnx.Tensor{logits}}
	if got, err := golden.WithOwnPasts(m, []golden.Case{fitting}); err != nil || len(got[0].Inputs) != 2 ||
		got[0].Input("past_k") != fitting.Inputs[1] {
		t.Errorf("a case that fits became %v, error %v", got, err)
	}
}
