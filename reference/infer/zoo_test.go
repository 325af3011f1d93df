package infer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// exports lists the models to test with, in the folder MOJO_ZOO or in the repository.
func exports(t testing.TB) []string {
	folder := os.Getenv("MOJO_ZOO")
	if folder == "" {
		folder = filepath.Join("..", "..", "models")
	}
	var files []string
	for _, pattern := range []string{"*.onnx", "*/*.onnx"} {
		f, _ := filepath.Glob(filepath.Join(folder, pattern))
		files = append(files, f...)
	}
	if len(files) == 0 {
		t.Skipf("no models in %s: MOJO_ZOO names a folder of some", folder)
	}
	return files
}

// TestExports runs exports on their goldens' inputs and compares every intermediate value with the facts inferred for
// inputs of these shapes: type, shape, and known elements. No inferred fact may be wrong.
func TestExports(t *testing.T) {
	ran := 0
	for _, path := range exports(t) {
		cases := strings.TrimSuffix(path, ".onnx") + ".npz"
		if _, err := os.Stat(cases); err != nil || filepath.Base(filepath.Dir(path)) == "broken" {
			continue // those of a folder "broken" cannot run on all their goldens
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(path), ".onnx"), func(t *testing.T) {
			m, err := onnx.Read(path, onnx.AllowMissingData())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			all, err := golden.Load(cases, m)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all[:min(2, len(all))] {
				compareRun(t, m, c.Inputs)
			}
		})
	}
	if ran == 0 {
		t.Skip("no model has a .npz beside it")
	}
}

// compareRun evaluates the model on the inputs and compares all values with world 0.
func compareRun(t *testing.T, m *onnx.Model, inputs []*onnx.Tensor) {
	symbols := newSymbols()
	env := map[*onnx.Value]*reference.Tensor{}
	for _, x := range inputs {
		v := m.Graph.Value(x.Name)
		if v == nil {
			t.Fatalf("the model has no input %q", x.Name)
		}
		decl, _ := v.Type()
		if decl.DataType != x.DataType {
			t.Skipf("input %q is %s in the golden, %s in the model", x.Name, x.DataType, decl.DataType)
		}
		r, err := reference.FromONNX(x)
		if err != nil {
			t.Fatal(err)
		}
		env[v] = r
		for i, d := range decl.Dims {
			if d.Param != "" {
				symbols.named(d.Param, i).start[0] = x.Dims[i]
			}
		}
	}
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Eval(m.Graph.Nodes, env); err != nil {
		t.Skipf("the evaluator cannot run it: %v", err)
	}
	// Lengths that depend on data cannot be inferred: set their real numbers, in order of appearance.
	var f *Facts
	for range 4 {
		f = analyze(m, symbols, nil)
		changed := false
		for key, s := range symbols.fresh {
			for i, d := range f.of(key.node.Outputs[0]).Shape[0] {
				if real := env[key.node.Outputs[0]]; real != nil && s.free() && d == s.start[0] &&
					d != int64(real.Shape[i]) {
					s.start[0] = int64(real.Shape[i])
					changed = true
				}
			}
		}
		if !changed {
			break
		}
	}
	total, known := 0, 0
	for v, real := range env {
		total++
		if dt := f.DataType(v); dt != onnx.Undefined && dt != real.DataType {
			t.Errorf("%s: type %s, inferred %s", describe(v), real.DataType, dt)
		}
		shape := f.of(v).Shape[0]
		if shape != nil && len(shape) != len(real.Shape) {
			t.Errorf("%s: shape %v, inferred %v", describe(v), real.Shape, shape)
			continue
		}
		for i, d := range shape {
			if d >= 0 && d != int64(real.Shape[i]) {
				t.Errorf("%s: shape %v, inferred %v", describe(v), real.Shape, shape)
				break
			}
		}
		if rules.Complete(shape) && f.DataType(v) != onnx.Undefined {
			known++
		}
		if val, ok := f.Known(v, 0); ok && !equalTensors(val, real) {
			t.Errorf("%s: its inferred elements are not the real ones", describe(v))
		}
	}
	t.Logf("%d of %d values known", known, total)
	if known < total {
		t.Errorf("%d of %d values are not known", total-known, total)
	}
}

func describe(v *onnx.Value) string {
	if v.Producer == nil {
		return "input " + v.Name
	}
	return v.Producer.OpType + " " + v.Name
}

// TestExportsOutputs checks that outputs' declared numbers are inferred, and that symbolic dimensions never look fixed.
func TestExportsOutputs(t *testing.T) {
	for _, path := range exports(t) {
		m, err := onnx.Read(path, onnx.AllowMissingData())
		if err != nil {
			t.Fatal(err)
		}
		f := Analyze(m)
		for _, v := range m.Graph.Outputs {
			decl, ok := v.Type()
			rank, known := f.Rank(v)
			if !ok || !decl.HasShape || !known {
				t.Errorf("%s: output %q has no known rank", filepath.Base(path), v.Name)
				continue
			}
			for i, d := range decl.Dims[:min(rank, len(decl.Dims))] {
				if got, _ := f.Dim(v, i); d.Value >= 0 && got != d.Value {
					t.Errorf("%s: output %q has %v, declared %v", filepath.Base(path), v.Name, f.of(v).Shape, decl.Dims)
				} else if _, fixed := f.Dim(v, i); d.Value < 0 && fixed {
					t.Errorf("%s: output %q has %v, declared %v: a symbolic dimension passes for fixed",
						filepath.Base(path), v.Name, f.of(v).Shape, decl.Dims)
				}
			}
		}
		m.Close()
	}
}
