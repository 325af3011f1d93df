package rewrite_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// Read a model, patch it for another machine without looking for kernels here, and write it.
func ExampleApply() {
	m, err := onnx.Read("../models/qwen3-dynamo-fp32.onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	before := len(m.Graph.Nodes)
	report, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range report.Patterns {
		if p.Found > 0 {
			fmt.Printf("%s: %d of %d fused\n", p.Name, p.Fused, p.Found)
		}
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := onnx.Write(filepath.Join(dir, "patched.onnx"), m); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(m.Graph.Nodes), "nodes, before", before)
	// Output:
	// AddRMSNorm: 4 of 4 fused
	// RMSNorm: 1 of 1 fused
	// SwiGLU: 2 of 2 fused
	// NormRotary: 4 of 4 fused
	// Attention: 2 of 2 fused
	// 51 nodes, before 215
}

// Choose one kernel by its id. It may serve several patterns; the report has a line for each site.
func ExampleRequest() {
	m, err := onnx.Read("../models/qwen3-dynamo-fp32.onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	report, err := rewrite.Apply(m, rewrite.Request{Kernels: "cpu_fused_rmsnorm", AssumeAvailable: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range report.Sites {
		if s.Status == rewrite.Fused {
			fmt.Println(s.Pattern, "at", s.Node)
		}
	}
	// Output:
	// RMSNorm at node_mul_4
	// RMSNorm at node_mul_6
	// RMSNorm at node_mul_8
	// AddRMSNorm at node_mul_101
	// AddRMSNorm at node_mul_104
	// RMSNorm at node_mul_106
	// RMSNorm at node_mul_108
	// AddRMSNorm at node_mul_201
	// AddRMSNorm at node_mul_204
}
