package crosscheck

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// Both readers agree on every bundled model and its patched form. MOJO_ZOO=DIR adds the models of DIR and DIR/models.
func TestModels(t *testing.T) {
	paths, err := filepath.Glob("../../models/*.onnx")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no bundled models", err)
	}
	if zoo := os.Getenv("MOJO_ZOO"); zoo != "" {
		for _, pattern := range []string{"*.onnx", "models/*.onnx"} {
			more, _ := filepath.Glob(filepath.Join(zoo, pattern))
			paths = append(paths, more...)
		}
	}
	equal := 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".onnx")
		t.Run(name, func(t *testing.T) {
			m := read(t, path)
			r := demand(t, path, m)
			if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true,
				Verify: rewrite.VerifyOff}); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "patched.onnx")
			if err := onnx.Write(out, m); err != nil {
				t.Fatal(err)
			}
			patched := demand(t, out, m)
			equal++
			t.Logf("%s; patched: %s", r, patched)
		})
	}
	t.Logf("%d of %d models equal, original and patched", equal, len(paths))
}

func read(t *testing.T, path string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// demand requires that both readers agree on the whole file.
func demand(t *testing.T, path string, m *onnx.Model) *Result {
	t.Helper()
	r, err := File(path, m)
	if err != nil {
		t.Fatal(err)
	}
	leftOut := slices.DeleteFunc(slices.Clone(r.LeftOut), func(s string) bool {
		return strings.HasSuffix(s, "attribute value of ConstantOfShape (tensor)") // onnx-go has no float16 tensors
	})
	if r.Undecoded != "" || len(leftOut) > 0 || r.Nodes == 0 || r.Edges < r.Nodes {
		t.Fatal(r)
	}
	return r
}

// Every change of the model after it was written is found in the file.
func TestWrongEdges(t *testing.T) {
	tests := map[string]struct {
		damage func(g *onnx.Graph)
		want   string
	}{
		"another input": {func(g *onnx.Graph) { n := find(g, "Mul"); n.SetInput(1, g.Inputs[0]) }, "input 1 is"},
		"operands swapped": {func(g *onnx.Graph) {
			n := find(g, "MatMul")
			a, b := n.Inputs[0], n.Inputs[1]
			n.SetInput(0, b)
			n.SetInput(1, a)
		}, "input 0 is"},
		"input more": {func(g *onnx.Graph) { n := find(g, "Mul"); n.SetInput(2, g.Inputs[0]) }, "inputs are"},
		"another op": {func(g *onnx.Graph) { find(g, "Mul").OpType = "Div" }, "is a Mul"},
		"attribute": {func(g *onnx.Graph) { find(g, "Transpose").Attributes[0].Ints = []int64{1, 0} },
			"attribute perm is"},
		"attribute more": {func(g *onnx.Graph) {
			n := find(g, "Mul")
			n.Attributes = append(n.Attributes, onnx.IntAttr("extra", 1))
		}, "extra is missing"},
		"attribute less": {func(g *onnx.Graph) { find(g, "Transpose").Attributes = nil }, "unexpected attribute"},
		"node less":      {func(g *onnx.Graph) { g.Nodes = g.Nodes[:len(g.Nodes)-1] }, "nodes, expected"},
		"order": {func(g *onnx.Graph) { i := len(g.Nodes) - 1; g.Nodes[i], g.Nodes[i-1] = g.Nodes[i-1], g.Nodes[i] },
			"is a"},
		"output":       {func(g *onnx.Graph) { g.AddOutput(find(g, "Mul").Outputs[0]) }, "the outputs are"},
		"graph inputs": {func(g *onnx.Graph) { g.Inputs = g.Inputs[:len(g.Inputs)-1] }, "the inputs are"},
	}
	const path = "../../models/llama-dynamo-fp32.onnx"
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := read(t, path)
			tt.damage(m.Graph)
			_, err := File(path, m)
			var difference *DifferenceError
			if !errors.As(err, &difference) || !strings.Contains(strings.Join(difference.Differences, "\n"), tt.want) {
				t.Errorf("%v, want a difference with %q", err, tt.want)
			}
		})
	}
}

func find(g *onnx.Graph, op string) *onnx.Node {
	for _, n := range g.Nodes {
		if n.Is(op) {
			return n
		}
	}
	panic("there is no " + op)
}
