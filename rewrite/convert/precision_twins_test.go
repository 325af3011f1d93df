package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestPrecisionIsPyTorchs: a converted model equals PyTorch's export of the same model in the half type, op by op and
// type by type, except for the float32 parts here, and returns PyTorch's results.
func TestPrecisionIsPyTorchs(t *testing.T) {
	m := read(t, filepath.Join(root, "models", "llama-dynamo-fp32.onnx"))
	twin := read(t, filepath.Join(root, "models", "llama-dynamo-bf16.onnx"))
	if _, err := Precision(m, onnx.BFloat16, "cuda"); err != nil {
		t.Fatal(err)
	}
	ours, theirs := typedOps(m), typedOps(twin)
	for op, n := range ours {
		if theirs[op] != n && !strings.HasPrefix(op, "Cast ") && !strings.HasPrefix(op, "Softmax ") {
			t.Errorf("%s: %d, in PyTorch's %d", op, n, theirs[op])
		}
	}
	if ours["Softmax float32"] != 2 || theirs["Softmax bfloat16"] != 2 {
		t.Errorf("Softmax: %v, in PyTorch's %v", ours, theirs)
	}
	for i, out := range twin.Graph.Outputs {
		want, _ := out.Type()
		if got, _ := m.Graph.Outputs[i].Type(); got.DataType != want.DataType {
			t.Errorf("%q is of %s, in PyTorch's of %s", out.Name, got.DataType, want.DataType)
		}
	}
	cases, err := golden.Load(filepath.Join(root, "models", "llama-dynamo-bf16.npz"), twin)
	if err != nil {
		t.Fatal(err)
	}
	got, err := evaluated(m, cases[0].Inputs)
	if err != nil {
		t.Fatal(err)
	}
	near(t, got[0], cases[0].Outputs[0], 8)
}

// TestPrecisionOfGates: the float32 part of a norm with a gate before it is the same as in PyTorch.
func TestPrecisionOfGates(t *testing.T) {
	m := read(t, filepath.Join(root, "models", "gated-zamba2-ts-fp32.onnx"))
	if _, err := Precision(m, onnx.Float16); err != nil {
		t.Fatal(err)
	}
	ours, theirs := typedOps(m), typedOps(read(t, filepath.Join(root, "models", "gated-zamba2-dynamo-fp16.onnx")))
	for _, op := range []string{"MatMul float16", "Pow float32", "ReduceMean float32", "Sigmoid float32"} {
		if ours[op] != theirs[op] || ours[op] == 0 {
			t.Errorf("%s: %d, in PyTorch's %d", op, ours[op], theirs[op])
		}
	}
	// These are the products with the weights of both norms. TorchScript's Casts leave one of them in float32.
	if ours["Mul float16"] > theirs["Mul float16"] {
		t.Errorf("Mul float16: %d, in PyTorch's %d", ours["Mul float16"], theirs["Mul float16"])
	}
}

// typedOps counts the nodes with float results by op and type.
func typedOps(m *onnx.Model) map[string]int {
	f := infer.Analyze(m)
	counts := map[string]int{}
	for _, n := range m.Graph.Nodes {
		if v := n.OutputValue(0); v != nil && !n.Is("Constant") && f.DataType(v).IsFloat() {
			counts[fmt.Sprintf("%s %s", n.OpType, f.DataType(v))]++
		}
	}
	return counts
}

// TestPrecisionBack converts PyTorch's half exports to float32 and to the other half type: they match the same goldens.
func TestPrecisionBack(t *testing.T) {
	for _, name := range []string{"qwen3-ts-fp16", "moe-chosen-dynamo-bf16", "gptoss-batched_mm-dynamo-bf16"} {
		path := filepath.Join(root, "models", name+".onnx")
		for _, to := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
			m := read(t, path)
			cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", m)
			if err != nil {
				t.Fatal(err)
			}
			in, _ := m.Graph.Outputs[0].Type()
			if to == in.DataType {
				continue
			}
			r, err := Precision(m, to)
			if err != nil {
				t.Fatalf("%s to %s: %v", name, to, err)
			}
			if r.From != in.DataType || r.Initializers == 0 {
				t.Errorf("%s to %s: %+v", name, to, r)
			}
			m, _ = rewritten(t, m)
			f := infer.Analyze(m)
			for _, n := range m.Graph.Nodes {
				for _, v := range slices.Concat(n.Inputs, n.Outputs) {
					if v == nil {
						continue
					}
					if d := f.DataType(v); d.IsFloat() && d != to && d != onnx.Float {
						t.Fatalf("%s to %s: %q is of %s", name, to, v.Name, d)
					}
				}
			}
			got, err := evaluated(m, narrowed(t, cases[0].Inputs, to))
			if err != nil {
				t.Fatalf("%s to %s: %v", name, to, err)
			}
			for _, g := range got {
				want := cases[0].Output(g.Name)
				stats, err := golden.Compare(g, want, golden.DefaultTolerance(coarser(g.DataType, want.DataType)))
				if err != nil || float64(stats.Cosine) < 0.9999 {
					t.Errorf("%s to %s: %v %+v", name, to, err, stats)
				}
			}
		}
	}
}
