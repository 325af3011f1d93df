package patterns_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Your patterns come before the built-in ones, whose views they may use.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "relu.pat")
	err = os.WriteFile(file, []byte(`
# Exporters write the rectified unit as the greater of x and 0.
pattern MaxRelu(x) -> y {
  y = Max(x, 0)
} => Relu(x)
`), 0o644)
	if err != nil {
		log.Fatal(err)
	}
	set, err := patterns.Load(file)
	if err != nil {
		log.Fatal(err)
	}

	m := onnx.New(10, 20)
	g := m.Graph
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 8}}})
	zero := g.AddInitializer(onnx.NewFloat32s("zero", []int64{}, []float32{0}))
	y := g.NewValue("y")
	g.AddNode("Max", []*onnx.Value{zero, x}, []*onnx.Value{y})
	g.AddOutput(y)

	matches, _ := set.Find(g, infer.Analyze(m))
	for _, m := range matches {
		fmt.Printf("%s: %s of %s makes %s\n", m.Pattern, m.Op, m.Inputs[0].Name, m.Outputs[0].Name)
	}
	// Output:
	// MaxRelu: Relu of x makes y
}

// The built-in patterns find the blocks of a model.
func ExampleSet_Find() {
	m, err := onnx.Read("../models/qwen3-dynamo-fp32.onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	matches, misses := patterns.Builtin().Find(m.Graph, infer.Analyze(m))
	for _, m := range matches[:4] {
		fmt.Println(m.Pattern, "ends in", m.Root.Name)
	}
	fmt.Println(len(matches), "matches,", len(misses), "near misses")
	// Output:
	// RMSNorm ends in node_mul_4
	// NormRotary ends in node_add_6
	// NormRotary ends in node_add_7
	// Attention ends in node_transpose_3
	// 13 matches, 0 near misses
}
