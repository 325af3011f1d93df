package convert

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// dynamic are the bundled models with values whose shape depends on data: they sort tokens by the chosen experts.
var dynamic = map[string]bool{"moe-mixtral-grouped_mm-hf-fp32": true, "moe-if-ts-fp32": true,
	"moe-flattened-ts-fp32": true, "moe-switch-ts-fp32": true, "moe-absent-ts-fp32": true,
	"moe-hits-ts-fp32": true}

// TestShapesOfBundledModels fixes the inputs of every bundled model to the shapes of its first case. Every value then
// has a known shape except those that depend on data, no shape is still computed, and the results stay the same, in the
// built-in evaluator and in onnxruntime.
func TestShapesOfBundledModels(t *testing.T) {
	dir := t.TempDir()
	var written []converted
	for name, path := range bundled(t) {
		t.Run(name, func(t *testing.T) {
			old := read(t, path)
			cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", old)
			if err != nil {
				t.Fatal(err)
			}
			c := &cases[0]
			before, err := evaluated(old, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			m := read(t, path)
			shapes := map[string][]int64{}
			for _, in := range c.Inputs {
				shapes[in.Name] = in.Dims
			}
			if err := Shapes(m, shapes); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, name+".onnx")
			if err := onnx.Write(file, m); err != nil {
				t.Fatal(err)
			}
			m = read(t, file)
			left := Dynamic(m)
			if (len(left) > 0) != dynamic[name] {
				t.Errorf("%d values without a known shape: %v", len(left), left)
			}
			checkLeft(t, m, left)
			t.Logf("%d nodes, before %d", len(m.Graph.Nodes), len(old.Graph.Nodes))
			if err := gives(m, c.Inputs, before); err != nil {
				t.Error(err)
			}
			sameInRuntime(t, path, file, c)
			written = append(written, converted{path: file, before: path})
		})
	}
	checkInPython(t, written)
}

// checkLeft checks that no node computes the shape of a value with a known shape, and that every unknown shape comes
// from data.
func checkLeft(t *testing.T, m *onnx.Model, left []string) {
	t.Helper()
	unknown := func(v *onnx.Value) bool { return v != nil && slices.Contains(left, v.Name) }
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if (n.Is("Shape") || n.Is("Size")) && !unknown(n.Input(0)) {
				t.Errorf("left: %s", n.Text())
			}
			if !slices.ContainsFunc(n.Outputs, unknown) || slices.ContainsFunc(n.Inputs, unknown) {
				continue
			}
			counted := slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return v.Constant() == nil })
			if !n.Is("NonZero") && !(n.Is("Range") && counted) && len(n.Subgraphs()) == 0 {
				t.Errorf("the shape is unknown: %s", n.Text())
			}
		}
	}
}

// TestLongSequences fixes sizes that make masks too large for constant folding. All shapes must be known anyway.
func TestLongSequences(t *testing.T) {
	for _, name := range []string{"llama-ts-fp32", "llama-kv-dynamo-fp32", "qwen3-dynamo-fp32",
		"mixtral-batched_mm-ts-fp16"} {
		old := read(t, filepath.Join(root, "models", name+".onnx"))
		inputs, err := golden.RandomInputs(old, 1, map[string]int64{"batch": 1, "sequence": 48})
		if err != nil {
			t.Fatal(err)
		}
		m := read(t, old.Path)
		shapes := map[string][]int64{}
		for _, in := range inputs {
			shapes[in.Name] = in.Dims
		}
		if err := Shapes(m, shapes); err != nil {
			t.Fatal(err)
		}
		if left := Dynamic(m); len(left) > 0 {
			t.Errorf("%s: %v", name, left)
		}
		checkLeft(t, m, nil)
		want, err := evaluated(old, inputs)
		if err != nil {
			t.Fatal(err)
		}
		if err := gives(m, inputs, want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestShapesOfNodeTests fixes the inputs of the standard's node tests, including the definitions of functions as
// graphs. The results stay the same.
func TestShapesOfNodeTests(t *testing.T) {
	ran, fewer := 0, 0
	for _, folder := range nodeTests(t) {
		old, m := read(t, filepath.Join(folder, "model.onnx")), read(t, filepath.Join(folder, "model.onnx"))
		c := recorded(folder, old)
		if c == nil {
			continue // it has values that are not tensors
		}
		shapes := map[string][]int64{}
		for _, in := range c.Inputs {
			if _, ok := m.Graph.Value(in.Name).Type(); ok {
				shapes[in.Name] = in.Dims
			}
		}
		name := filepath.Base(folder)
		if err := Shapes(m, shapes); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if sameAsBefore(t, name, old, m, folder) {
			ran++
		}
		for _, v := range m.Graph.Outputs {
			declared, _ := v.Type()
			is := c.Output(v.Name).Dims
			if !slices.Contains(Dynamic(m), v.Name) && !slices.Equal(declared.Dims, fixed(is)) {
				t.Errorf("%s: output %q is declared as %v, and is of shape %v", name, v.Name, declared, is)
			}
		}
		if len(m.Graph.Nodes) < len(old.Graph.Nodes) {
			fewer++
		}
	}
	if ran == 0 || fewer == 0 {
		t.Errorf("%d models ran, %d of them with fewer nodes", ran, fewer)
	}
	t.Logf("%d models ran, %d with fewer nodes", ran, fewer)
}

// TestOneDimension fixes only the first or the second dimension of every bundled model's first input. The results stay
// the same.
func TestOneDimension(t *testing.T) {
	fixedOnes := 0
	for name, path := range bundled(t) {
		old := read(t, path)
		cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", old)
		if err != nil {
			t.Fatal(err)
		}
		c := cases[len(cases)-1]
		want, err := evaluated(old, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		first := old.Graph.Inputs[0]
		dims, _ := first.Type()
		for axis := range 2 {
			if dims.Dims[axis].Param == "" {
				continue
			}
			m := read(t, path)
			if err := Dims(m, map[string]int64{dims.Dims[axis].Param: c.Input(first.Name).Dims[axis]}); err != nil {
				t.Fatal(err)
			}
			if err := gives(m, c.Inputs, want); err != nil {
				t.Errorf("%s, %s fixed: %v", name, dims.Dims[axis].Param, err)
			}
			fixedOnes++
		}
	}
	if fixedOnes == 0 {
		t.Error("no model has a symbolic dimension")
	}
}
