package onnx_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Read maps the file, so that a graph can be inspected whatever the size of its weights.
func ExampleRead() {
	m, err := onnx.Read("../models/qwen3-dynamo-fp32.onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		fmt.Println(v.Name, t.DataType, len(t.Dims), "axes")
	}
	softmaxes := 0
	for _, n := range m.Graph.Nodes {
		if n.Is("Softmax") {
			softmaxes++
		}
	}
	fmt.Println("opset", m.Opset(""), "with", softmaxes, "of", len(m.Graph.Nodes), "nodes a Softmax")
	// Output:
	// input_ids int64 2 axes
	// attention_mask int64 2 axes
	// opset 20 with 2 of 215 nodes a Softmax
}

// Build a model node by node, write it, and read it again.
func ExampleWrite() {
	m := onnx.New(10, 20)
	g := m.Graph
	rows := []onnx.Dim{{Value: -1, Param: "rows"}, {Value: 2}}
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: rows})
	w := g.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{1, 2}))
	y := g.NewValue("y")
	g.AddNode("Mul", []*onnx.Value{x, w}, []*onnx.Value{y})
	g.AddOutput(y)

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "scaled.onnx")
	if err := onnx.Write(path, m); err != nil {
		log.Fatal(err)
	}
	again, err := onnx.Read(path)
	if err != nil {
		log.Fatal(err)
	}
	defer again.Close()
	n := again.Graph.Nodes[0]
	fmt.Println(n.OpType, n.Inputs[0].Name, n.Inputs[1].Name, n.Inputs[1].Const.Dims)
	// Output:
	// Mul x w [2]
}
