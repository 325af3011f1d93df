package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// withoutCPUKernels reports whether onnxruntime's CPU provider lacks kernels for a bundled model's type: most bfloat16
// kernels.
func withoutCPUKernels(model string) bool { return strings.HasSuffix(model, "-bf16") }

// bundled returns the blocks of the bundled models by name.
func bundled(t *testing.T) map[string]models.Blocks { return bundledIn(t, ".", 10) }

// bundledIn is bundled for a folder of models, which must contain at least atLeast.
func bundledIn(t *testing.T, folder string, atLeast int) map[string]models.Blocks {
	t.Helper()
	truth, err := models.ReadTruth(filepath.Join("..", "..", "models", folder))
	if err != nil {
		t.Fatal(err)
	}
	if len(truth) < atLeast {
		t.Fatalf("truth.json of models/%s has %d models", folder, len(truth))
	}
	return truth
}

// TestBundledModels patches every bundled model. The outputs must stay those of PyTorch, also on inputs that commonly
// expose attention bugs, and each block that PyTorch executes must be fused.
func TestBundledModels(t *testing.T) {
	if onnxruntime, kernels := testEnvironment(t); onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	for name, want := range bundled(t) {
		t.Run(name, func(t *testing.T) {
			model := filepath.Join("..", "..", "models", name+".onnx")
			out := filepath.Join(t.TempDir(), "patched.onnx")
			args := []string{"apply", model, "-o", out, "--json", "--require", "--check-kernels", "on", "--verify",
				"all",
				"--golden", strings.TrimSuffix(model, ".onnx") + ".npz"}
			if withoutCPUKernels(name) {
				args = append(args, "--evaluator")
			}
			r := report(t, args...)
			if got := fusedBlocks(r); got != want {
				t.Errorf("fused %+v; PyTorch runs %+v", got, want)
			}
			for _, s := range r.Sites {
				if s.Status == rewrite.Refused {
					t.Errorf("refused %s at %s: %s", s.Pattern, s.Node, s.Reason)
				}
			}
			sameOnHardInputs(t, name, model, out)
			again := report(t, "apply", out, "-o", filepath.Join(t.TempDir(), "again.onnx"), "--json")
			if again.Fused() != 0 || again.Output.Nodes != r.Output.Nodes {
				t.Errorf("a second pass fused %d sites more", again.Fused())
			}
		})
	}
}

func report(t *testing.T, args ...string) *rewrite.Report {
	t.Helper()
	r := &rewrite.Report{}
	printed(t, r, args...)
	return r
}

// printed runs a command that must succeed, and parses its JSON.
func printed(t *testing.T, v any, args ...string) {
	t.Helper()
	var out, err bytes.Buffer
	if code := execute(args, &out, &err); code != cli.ExitDone {
		t.Fatalf("mojo-patch %s: exit code %d\n%s", strings.Join(args, " "), code, err.String())
	}
	if e := json.Unmarshal(out.Bytes(), v); e != nil {
		t.Fatalf("%v\n%s", e, out.String())
	}
}

// fusedBlocks counts the fused sites.
func fusedBlocks(r *rewrite.Report) (got models.Blocks) {
	for _, s := range r.Sites {
		if s.Status == rewrite.Fused {
			got = got.Plus(models.Of(s.Op))
		}
	}
	return got
}

// fusedBy counts the fused sites of patterns.
func fusedBy(r *rewrite.Report, names ...string) int {
	n := 0
	for _, p := range r.Patterns {
		if slices.Contains(names, p.Name) {
			n += p.Fused
		}
	}
	return n
}
