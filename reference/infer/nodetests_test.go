package infer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// TestNodeTests compares with the standard's own tests of its operators: inferred types and shapes of outputs must
// match the recorded outputs. Declared outputs are removed to test the rules. Of the inputs' elements, only integers
// after the first input are given, so that rules do the work instead of evaluation.
func TestNodeTests(t *testing.T) {
	folder := os.Getenv("MOJO_NODE_TESTS")
	if folder == "" {
		folder = filepath.Join("..", "..", "build", "onnx-node-tests")
	}
	models, _ := filepath.Glob(filepath.Join(folder, "*", "model.onnx"))
	if len(models) == 0 {
		t.Skipf("no tests in %s: MOJO_NODE_TESTS names the folder", folder)
	}
	total, known, expanded, expandedKnown := 0, 0, 0, 0
	missing := map[string]int{}
	for _, path := range models {
		m, err := onnx.Read(path)
		if err != nil {
			continue // 6-bit types and similar
		}
		cases, err := golden.Load(filepath.Dir(path), m)
		if err != nil || len(cases) == 0 || len(cases[0].Outputs) != len(m.Graph.Outputs) {
			continue // sequences and optionals
		}
		name := filepath.Base(filepath.Dir(path))
		if slices.ContainsFunc(m.Graph.Outputs, func(v *onnx.Value) bool { _, ok := v.Type(); return !ok }) {
			continue
		}
		given := map[*onnx.Value]*rules.Fact{}
		for i, x := range cases[0].Inputs {
			v := m.Graph.Value(x.Name)
			if v == nil {
				continue
			}
			dims := slices.Concat([]int64{}, x.Dims)
			f := &rules.Fact{DataType: x.DataType, Shape: everywhere(dims), Same: true}
			if r, err := reference.FromONNX(x); err == nil && (r.I != nil || r.Len() == 1) && i > 0 &&
				r.Len() <= MaxElements {
				f.Value = everywhere(r)
			}
			given[v] = f
		}
		for _, n := range m.Graph.Nodes {
			for _, v := range n.Outputs {
				if v != nil {
					v.SetType(onnx.Type{})
				}
			}
		}
		f := analyze(m, newSymbols(), given)
		for i, v := range m.Graph.Outputs {
			want := cases[0].Outputs[i]
			dt := f.DataType(v)
			if dt != onnx.Undefined && dt != want.DataType {
				t.Errorf("%s: output %q has the type %s, inferred %s", name, v.Name, want.DataType, dt)
			}
			shape := f.of(v).Shape[0]
			ok := shape == nil || len(shape) == len(want.Dims)
			for k := range shape {
				ok = ok && (shape[k] < 0 || shape[k] == want.Dims[k])
			}
			if !ok && !dataDependent(f, shape) {
				t.Errorf("%s: output %q has the shape %v, inferred %v", name, v.Name, want.Dims, shape)
			}
			all := rules.Complete(shape) && dt != onnx.Undefined
			if strings.Contains(name, "_expanded") {
				expanded++
				if all {
					expandedKnown++
				}
				continue
			}
			if total++; all {
				known++
			} else {
				missing[m.Graph.Nodes[0].OpType]++
			}
		}
	}
	t.Logf("%d of %d outputs known, of expanded functions %d of %d; not known: %v", known, total, expandedKnown,
		expanded, missing)
	if known*10 < total*7 || expandedKnown*10 < expanded*8 {
		t.Error("less is known than there was")
	}
}

// dataDependent reports whether a dimension has a number of a length that the data decide.
func dataDependent(f *Facts, shape []int64) bool {
	for _, s := range f.symbols {
		if slices.Contains(shape, s.start[0]) {
			return true
		}
	}
	return false
}
