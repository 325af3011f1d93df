package convert

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// nodeTests lists the folders of the standard's node tests, which tools/onnx-node-tests.py creates.
func nodeTests(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv("MOJO_ONNX_NODE_TESTS")
	if dir == "" {
		dir = filepath.Join(root, "build", "onnx-node-tests")
	}
	models, _ := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if len(models) == 0 {
		if os.Getenv(orttest.RequireVariable) != "" {
			t.Fatalf("no node tests in %s", dir)
		}
		t.Skipf("no node tests in %s: make them with tools/onnx-node-tests.py, or set MOJO_ONNX_NODE_TESTS", dir)
	}
	for i, path := range models {
		models[i] = filepath.Dir(path)
	}
	return models
}

// TestSteps converts the standard's node tests of older opsets, and the models with older op versions from
// testdata/older.py, to the newest opset and to opset 23 and 24, except to opsets for which a node test takes the same
// steps as for the next one. In the built-in evaluator, the results stay the same bit for bit. onnx.checker accepts
// every model. If a step was taken, onnx's reference evaluator and onnxruntime reproduce the recorded results. Every
// step is taken at least once.
func TestSteps(t *testing.T) {
	older := t.TempDir()
	if out, err := exec.Command(python(t), filepath.Join("testdata", "older.py"), older).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, _ := filepath.Glob(filepath.Join(older, "*"))
	stepped := map[string]int{}
	t.Run("node tests", func(t *testing.T) { convertAll(t, nodeTests(t), stepped, false) })
	t.Run("older versions", func(t *testing.T) { convertAll(t, made, stepped, true) })
	for op, list := range steps {
		for v := range list {
			if key := fmt.Sprintf("%s %d", op, v); stepped[key] == 0 {
				t.Errorf("no test takes the step of %s", key)
			}
		}
	}
}

func convertAll(t *testing.T, folders []string, stepped map[string]int, inRuntime bool) {
	dir := t.TempDir()
	var files []converted
	ran, ranInRuntime := 0, 0
	for _, folder := range folders {
		name := filepath.Base(folder)
		before := filepath.Join(folder, "model.onnx")
		out := filepath.Join(dir, name) // Write looks at all files next to this one
		if err := os.Mkdir(out, 0o755); err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, to := range []int64{Newest(), 24, 23} {
			m := read(t, before)
			if from := m.Opset(""); from < Oldest || from >= to {
				continue
			}
			changes := count(m, to, stepped)
			if !inRuntime && (to != Newest() && changes == last || changes == 0 && testing.Short()) {
				continue // only the import differs
			}
			last = changes
			path := filepath.Join(out, fmt.Sprintf("%d.onnx", to))
			err := Opset(m, to)
			if err == nil {
				err = onnx.Write(path, m)
			}
			if err != nil {
				t.Errorf("%s to %d: %v", name, to, err)
				continue
			}
			run := ""
			if changes > 0 { // the reference evaluator is slow
				run = caseOf(folder, m)
			}
			files = append(files, converted{path, before, run})
			if sameAsBefore(t, name, read(t, before), read(t, path), folder) {
				ran++
			}
			if inRuntime && to == 23 && sameInRuntime(t, before, path, recorded(folder, m)) {
				ranInRuntime++
			}
		}
	}
	t.Logf("%d models converted, %d of them run in the evaluator, %d in onnxruntime", len(files), ran, ranInRuntime)
	checkInPython(t, files)
}

// count counts the steps that the model's nodes take.
func count(m *onnx.Model, to int64, stepped map[string]int) (changes int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			for _, v := range known().ops[n.OpType] {
				if onnx.IsStandardDomain(n.Domain) && !v.same && v.since > m.Opset("") && v.since <= to {
					stepped[fmt.Sprintf("%s %d", n.OpType, v.since)]++
					changes++
				}
			}
		}
	}
	return changes
}

// caseOf returns the folder of the recorded case, or "" if it has values that are not tensors.
func caseOf(folder string, m *onnx.Model) string {
	for _, v := range append(append([]*onnx.Value{}, m.Graph.Inputs...), m.Graph.Outputs...) {
		if _, ok := v.Type(); !ok {
			return ""
		}
	}
	return filepath.Join(folder, "test_data_set_0")
}

// sameAsBefore reports whether the evaluator runs the older model. If so, it compares the newer model with it.
func sameAsBefore(t *testing.T, name string, older, newer *onnx.Model, folder string) bool {
	c := recorded(folder, older)
	if c == nil {
		return false // it has values that are not tensors
	}
	want, err := evaluated(older, c.Inputs)
	if err != nil {
		return false
	}
	if err := gives(newer, c.Inputs, want); err != nil {
		t.Errorf("%s, opset %d to %d: %v", name, older.Opset(""), newer.Opset(""), err)
	}
	return true
}

// recorded reads the case. It returns nil if the case has values that are not tensors.
func recorded(folder string, m *onnx.Model) *golden.Case {
	cases, err := golden.Load(filepath.Join(folder, "test_data_set_0"), m)
	if err != nil {
		return nil
	}
	return &cases[0]
}
