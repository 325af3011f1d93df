//go:build cgo

package ort_test

import (
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func TestMain(m *testing.M) {
	if os.Getenv(findNothing) != "" { // it searches itself
		os.Exit(m.Run())
	}
	orttest.Main(m)
}

// A session runs a model in onnxruntime. ort.WithKernels() lets it run the fused ops of a patched model.
func ExampleOpen() {
	session, err := ort.Open("../models/qwen3-dynamo-fp32.onnx", ort.WithThreads(1))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for _, in := range session.Inputs() {
		fmt.Println("input", in.Name, in.DataType)
	}
	cases, err := golden.Load("../models/qwen3-dynamo-fp32.npz", nil)
	if err != nil {
		log.Fatal(err)
	}
	outputs, err := session.Run(cases[0].Inputs)
	if err != nil {
		log.Fatal(err)
	}
	for _, out := range outputs {
		fmt.Println("output", out.Name, out.DataType, out.Dims)
	}
	// Output:
	// input input_ids int64
	// input attention_mask int64
	// output logits float32 [2 7 160]
}
