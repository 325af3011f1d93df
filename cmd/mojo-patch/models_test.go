package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/rewrite"
)

// truth is what models/truth.json says of one model.
type truth struct {
	Architecture string
	DType        string
	Blocks       struct{ RMSNorm, LayerNorm, RoPE, GLU, MoE int }
}

// TestBundledModels patches every bundled model, demands that it still reproduces PyTorch's outputs, and counts: each block
// that PyTorch executes is fused.
func TestBundledModels(t *testing.T) {
	b, err := os.ReadFile("../../models/truth.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Models map[string]truth }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Models) < 10 {
		t.Fatalf("models/truth.json has %d models", len(file.Models))
	}
	if onnxruntime, kernels := testEnvironment(t); onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	for name, want := range file.Models {
		t.Run(name, func(t *testing.T) {
			model := filepath.Join("..", "..", "models", name+".onnx")
			out := filepath.Join(t.TempDir(), "patched.onnx")
			args := []string{"apply", model, "-o", out, "--json", "--require", "--check-kernels", "on", "--verify", "all",
				"--golden", strings.TrimSuffix(model, ".onnx") + ".npz"}
			if want.DType == "bf16" { // onnxruntime's CPU provider lacks most bfloat16 kernels
				args = append(args, "--evaluator")
			}
			r := report(t, args...)
			norms, glus, ropes := fusedBy(r, "RMSNorm")+fusedBy(r, "AddRMSNorm"), fusedBy(r, "SwiGLU")+fusedBy(r, "GeGLU"), fusedBy(r, "RotaryEmbedding")
			rope := want.Blocks.RoPE
			if want.Architecture == "cohere" {
				rope = 0 // interleaved pairs: left as they are
			}
			if norms != want.Blocks.RMSNorm || glus != want.Blocks.GLU || ropes != rope {
				t.Errorf("fused %d norms, %d gated activations, %d rotary embeddings; PyTorch runs %+v", norms, glus, ropes, want.Blocks)
			}
			for _, s := range r.Sites {
				if s.Status == rewrite.Refused {
					t.Errorf("refused %s at %s: %s", s.Pattern, s.Node, s.Reason)
				}
			}
			again := report(t, "apply", out, "-o", filepath.Join(t.TempDir(), "again.onnx"), "--json")
			if again.Fused() != 0 || again.Output.Nodes != r.Output.Nodes {
				t.Errorf("a second pass fused %d places more", again.Fused())
			}
		})
	}
}

func report(t *testing.T, args ...string) *rewrite.Report {
	t.Helper()
	var out, err bytes.Buffer
	if code := run(args, &out, &err); code != exitDone {
		t.Fatalf("mojo-patch %s: exit code %d\n%s", strings.Join(args, " "), code, err.String())
	}
	r := &rewrite.Report{}
	if e := json.Unmarshal(out.Bytes(), r); e != nil {
		t.Fatalf("%v\n%s", e, out.String())
	}
	return r
}

func fusedBy(r *rewrite.Report, pattern string) int {
	for _, p := range r.Patterns {
		if p.Name == pattern {
			return p.Fused
		}
	}
	return 0
}
