package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// nodeTests lists the folders of the standard's node tests, which scripts/onnx-node-tests.py makes.
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
		t.Skipf("no node tests in %s: make them with scripts/onnx-node-tests.py, or set MOJO_ONNX_NODE_TESTS", dir)
	}
	for i, path := range models {
		models[i] = filepath.Dir(path)
	}
	return models
}

// TestNodeTests converts the standard's node tests of older opsets to 23, 24 and the newest. What the built-in evaluator runs gives bit
// for bit what it gave; onnx.checker accepts all, and onnx's reference evaluator gives what is recorded.
func TestNodeTests(t *testing.T) {
	dir := t.TempDir()
	var files []converted
	ran, refused, stepped := 0, map[string]string{}, map[string]int{}
	for _, folder := range nodeTests(t) {
		name := filepath.Base(folder)
		before := filepath.Join(folder, "model.onnx")
		for _, to := range []int64{23, 24, Newest()} {
			m := read(t, before)
			from := m.Opset("")
			if from < oldest || from >= to {
				continue
			}
			count(m, to, stepped)
			if err := Opset(m, to); err != nil {
				refused[fmt.Sprintf("%s to %d", name, to)] = err.Error()
				continue
			}
			path := filepath.Join(dir, fmt.Sprintf("%s-%d.onnx", name, to))
			if err := onnx.Write(path, m); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			files = append(files, converted{path, before, caseOf(folder, m)})
			if sameAsBefore(t, name, read(t, before), read(t, path), folder) {
				ran++
			}
		}
	}
	t.Logf("%d models converted, %d of them run in the evaluator; steps: %v", len(files), ran, stepped)
	for test, why := range refused {
		if !refusals[strings.TrimPrefix(test, "test_")] {
			t.Errorf("%s: %s", test, why)
		}
	}
	for op, list := range steps {
		for v := range list {
			if key := fmt.Sprintf("%s %d", op, v); stepped[key] == 0 && !untested[key] {
				t.Errorf("no node test converts %s", key)
			}
		}
	}
	checkInPython(t, files)
}

// refusals are the conversions that must be errors.
var refusals = map[string]bool{}

// untested are the steps that no node test needs.
var untested = map[string]bool{}

// count counts the steps that the model's nodes take.
func count(m *onnx.Model, to int64, stepped map[string]int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			for _, v := range known().ops[n.OpType] {
				if onnx.IsStandardDomain(n.Domain) && !v.same && v.since > m.Opset("") && v.since <= to {
					stepped[fmt.Sprintf("%s %d", n.OpType, v.since)]++
				}
			}
		}
	}
}

// caseOf gives the folder of the recorded case, nothing where it has values that are no tensors.
func caseOf(folder string, m *onnx.Model) string {
	for _, v := range append(append([]*onnx.Value{}, m.Graph.Inputs...), m.Graph.Outputs...) {
		if _, ok := v.Type(); !ok {
			return ""
		}
	}
	return filepath.Join(folder, "test_data_set_0")
}

// sameAsBefore says whether the evaluator runs the older model, and then compares the newer one with it.
func sameAsBefore(t *testing.T, name string, older, newer *onnx.Model, folder string) bool {
	cases, err := golden.Load(filepath.Join(folder, "test_data_set_0"), older)
	if err != nil {
		return false // values that are no tensors
	}
	want, err := evaluated(older, cases[0].Inputs)
	if err != nil {
		return false
	}
	got, err := evaluated(newer, cases[0].Inputs)
	if err == nil {
		err = equal(got, want)
	}
	if err != nil {
		t.Errorf("%s, opset %d to %d: %v", name, older.Opset(""), newer.Opset(""), err)
	}
	return true
}
