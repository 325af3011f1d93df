package golden_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestFitInputs(t *testing.T) {
	m := onnx.New(10, 20)
	m.Graph.AddInput("x",
		onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "batch"}, {Value: 3}}})
	m.Graph.AddInput("any", onnx.Type{DataType: onnx.Float})
	tensor := func(name string, dims ...int64) *onnx.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return onnx.NewFloat32s(name, dims, make([]float32, n))
	}
	whole, err := onnx.NewTensor("x", onnx.Int64, []int64{1, 3}, make([]byte, 24))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		inputs []*onnx.Tensor
		want   string // "" for no error
	}{
		{[]*onnx.Tensor{tensor("x", 2, 3), tensor("any", 1, 2, 3)}, ""},
		{[]*onnx.Tensor{tensor("x", 0, 3), tensor("any")}, ""},
		{[]*onnx.Tensor{tensor("any", 1)}, `no values for the input "x"`},
		{[]*onnx.Tensor{tensor("x", 2, 3)}, `no values for the input "any"`},
		{[]*onnx.Tensor{tensor("x", 2, 4), tensor("any", 1)}, "are float32[2 4]"},
		{[]*onnx.Tensor{tensor("x", 3), tensor("any", 1)}, "are float32[3]"},
		{[]*onnx.Tensor{whole, tensor("any", 1)}, "are int64[1 3]"},
		{[]*onnx.Tensor{tensor("x", 2, 3), tensor("any", 1), tensor("y", 1)},
			`"y" is not an input of the model; the inputs are "x", "any"`},
	} {
		err := golden.FitInputs(m, golden.Case{Inputs: test.inputs})
		if test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("error %v, expected %q", err, test.want)
		}
	}
}
