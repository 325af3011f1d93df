//go:build cgo

package ort_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// onnxruntime's own limits: its errors for models that it cannot open or run on the CPU.
var limits = []string{
	"Could not find an implementation",                                   // an op without a kernel for bfloat16
	"of operator (TopK) in node",                                         // its types include bfloat16 from opset 24 on
	"'cos_cache' and 'sin_cache' are expected to have the same shape as", // RotaryEmbedding needs the batch dimension
}

// TestModels compares the repository's models, and those of the folder $MOJO_ZOO, with PyTorch's results.
func TestModels(t *testing.T) {
	library := orttest.Library(t)
	files, err := filepath.Glob("../models/*.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if zoo := os.Getenv("MOJO_ZOO"); zoo != "" {
		for _, pattern := range []string{"*.onnx", "models/*.onnx"} {
			more, _ := filepath.Glob(filepath.Join(zoo, pattern))
			files = append(files, more...)
		}
	}
	compared := 0
	for _, file := range files {
		recorded := strings.TrimSuffix(file, ".onnx") + ".npz"
		if _, err := os.Stat(recorded); err != nil {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".onnx"), func(t *testing.T) {
			compared += runModel(t, library, file, recorded)
		})
	}
	if len(files) > 0 && compared == 0 {
		t.Error("no model could be compared")
	}
}

func runModel(t *testing.T, library, file, recorded string) (compared int) {
	m, err := onnx.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := ort.Open(file, ort.WithLibrary(library), ort.WithThreads(1), ort.WithOptimization(ort.OptimizeNone))
	if err != nil {
		skipLimits(t, err)
		t.Fatal(err)
	}
	defer s.Close()
	cases, err := golden.Load(recorded, m)
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := golden.RandomInputs(m, 1, map[string]int64{"batch": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(inputs); err != nil {
		t.Errorf("random inputs: %v", err)
	}
	for _, c := range cases {
		got, err := s.Run(c.Inputs)
		if err != nil {
			skipLimits(t, err)
			t.Fatal(err)
		}
		stats, err := golden.CompareAll(got, c.Outputs, golden.Tolerances{})
		if err != nil {
			t.Error(err)
		}
		for _, s := range stats {
			if !s.Passed {
				t.Error(s.Summary())
			}
			compared++
		}
	}
	return compared
}

func skipLimits(t *testing.T, err error) {
	t.Helper()
	for _, l := range limits {
		if strings.Contains(err.Error(), l) {
			t.Skip(err)
		}
	}
}
