package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// randomOps return numbers that differ between implementations.
var randomOps = map[string]bool{"Bernoulli": true, "RandomNormal": true, "RandomUniform": true, "Multinomial": true}

// skippedNodeTests are skipped cases of supported ops, with the reasons.
var skippedNodeTests = map[string]string{
	"test_scan_sum":                      "Scan of opset 8, which is refused",
	"test_training_dropout":              "random",
	"test_training_dropout_mask":         "random",
	"test_training_dropout_default":      "random",
	"test_training_dropout_default_mask": "random",
}

// TestNodeTests runs the standard's own node tests for every op that the evaluator claims. tools/onnx-node-tests.py
// makes the folder.
func TestNodeTests(t *testing.T) {
	dir := os.Getenv("MOJO_ONNX_NODE_TESTS")
	if dir == "" {
		dir = filepath.Join("..", "build", "onnx-node-tests")
	}
	models, _ := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if len(models) == 0 {
		t.Skipf("no node tests in %s: make them with tools/onnx-node-tests.py, or set MOJO_ONNX_NODE_TESTS", dir)
	}
	missing := map[string]int{}
	claimed, passed, foreign := 0, 0, 0
	for _, path := range models {
		name := filepath.Base(filepath.Dir(path))
		if skippedNodeTests[name] != "" {
			continue
		}
		m, err := onnx.Read(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if lacks := unsupported(m); len(lacks) > 0 {
			for _, op := range lacks {
				missing[op]++
			}
			m.Close()
			continue
		}
		if !denseOnly(m) {
			foreign++
			m.Close()
			continue
		}
		claimed++
		if err := runNodeTest(m, filepath.Join(filepath.Dir(path), "test_data_set_0")); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			passed++
		}
		m.Close()
	}
	ops := make([]string, 0, len(missing))
	for op := range missing {
		ops = append(ops, op)
	}
	sort.Slice(ops, func(i, j int) bool {
		return missing[ops[i]] > missing[ops[j]] || missing[ops[i]] == missing[ops[j]] && ops[i] < ops[j]
	})
	var list strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&list, " %s:%d", op, missing[op])
	}
	t.Logf("node tests: %d of %d claimed cases pass, of %d in all; %d have values that are no dense tensors; missing "+
		"ops:%s",
		passed, claimed, len(models), foreign, list.String())
}

// unsupported lists the op types of the model that the evaluator lacks.
func unsupported(m *onnx.Model) []string {
	var lacks []string
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if m.Function(n.Domain, n.OpType, n.Overload) == nil && !Supported(n.Domain, n.OpType) ||
				randomOps[n.OpType] {
				lacks = append(lacks, n.OpType)
			}
		}
	}
	return lacks
}

// denseOnly reports whether all inputs and outputs are tensors of supported types.
func denseOnly(m *onnx.Model) bool {
	for _, v := range append(append([]*onnx.Value{}, m.Graph.Inputs...), m.Graph.Outputs...) {
		d, ok := v.Type()
		if !ok || !tensor.IsFloatType(d.DataType) && !tensor.IsIntType(d.DataType) && d.DataType != onnx.String {
			return false
		}
	}
	return true
}

func readTensor(path string) (*Tensor, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := onnx.UnmarshalTensor(b)
	if err != nil {
		return nil, err
	}
	return FromONNX(p)
}

func runNodeTest(m *onnx.Model, dir string) error {
	in := map[string]*Tensor{}
	for i, v := range m.Graph.Inputs {
		x, err := readTensor(filepath.Join(dir, fmt.Sprintf("input_%d.pb", i)))
		if err != nil {
			return err
		}
		in[v.Name] = x
	}
	e, err := New(m, Options{})
	if err != nil {
		return err
	}
	out, err := e.Run(in)
	if err != nil {
		return err
	}
	for i, v := range m.Graph.Outputs {
		want, err := readTensor(filepath.Join(dir, fmt.Sprintf("output_%d.pb", i)))
		if err != nil {
			return err
		}
		// The tolerances of the standard's runner, wider by the step of the narrow types.
		abs, rel := 1e-5, 1e-3
		switch want.DataType {
		case onnx.Float16:
			abs, rel = 1e-3, 2e-3
		case onnx.BFloat16:
			abs, rel = 1e-2, 1e-2
		}
		if err := closeTo(out[v.Name], want, abs, rel); err != nil {
			return fmt.Errorf("output %q: %w", v.Name, err)
		}
	}
	return nil
}
