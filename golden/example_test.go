package golden_test

import (
	"fmt"
	"log"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Compare a model's outputs, here from the built-in evaluator, with PyTorch's.
func ExampleCompareAll() {
	m, err := onnx.Read("../models/qwen3-dynamo-fp32.onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	cases, err := golden.Load("../models/qwen3-dynamo-fp32.npz", m)
	if err != nil {
		log.Fatal(err)
	}
	evaluator, err := reference.New(m, reference.Options{})
	if err != nil {
		log.Fatal(err)
	}
	inputs := map[string]*reference.Tensor{}
	for _, t := range cases[0].Inputs {
		if inputs[t.Name], err = reference.FromONNX(t); err != nil {
			log.Fatal(err)
		}
	}
	outputs, err := evaluator.Run(inputs)
	if err != nil {
		log.Fatal(err)
	}
	logits, err := outputs["logits"].ToONNX("logits")
	if err != nil {
		log.Fatal(err)
	}
	stats, err := golden.CompareAll([]*onnx.Tensor{logits}, cases[0].Outputs, golden.Tolerances{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range stats {
		fmt.Println(s.Name, s.DataType, s.Shape, "passed:", s.Passed)
	}
	// Output:
	// logits float32 [2 7 160] passed: true
}

// An element out of tolerance fails the comparison, which is not an error, and is reported.
func ExampleCompare() {
	want := onnx.NewFloat32s("y", []int64{3}, []float32{1, 2, 4})
	got := onnx.NewFloat32s("y", []int64{3}, []float32{1, 2.5, 4})
	s, err := golden.Compare(got, want, golden.DefaultTolerance(onnx.Float))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Passed, "at", s.Worst.Index, "got", s.Worst.Got, "want", s.Worst.Want)
	// Output:
	// false at [1] got 2.5 want 2
}
