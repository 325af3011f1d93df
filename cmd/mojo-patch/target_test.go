package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// takenBlocks returns the blocks of a model that a target takes or keeps. If it takes no mixture, its experts are
// separate blocks.
func takenBlocks(to, model string, all models.Blocks) models.Blocks {
	if to == "ort" && withoutCPUKernels(model) {
		return models.Blocks{LayerNorm: all.LayerNorm}
	}
	if all.Router = 0; to != "ort" || otherMixture[model] {
		all.MoE = 0
	}
	return all
}

// otherMixture lists models whose experts onnxruntime's MoE cannot compute: sigmoid routers, GELU gates, erf GELU.
var otherMixture = map[string]bool{"deepseek3-batched_mm-ts-fp32": true,
	"moe-gates-ts-fp16":      true,
	"moe-einsum-dynamo-fp16": true, // 12 wide
	"moe-gelu-ts-fp32":       true, "moe-where-ts-fp32": true}

// TestBundledModelsForTargets patches every bundled model for the targets that onnxruntime's CPU provider runs. The
// results must be PyTorch's without the kernels, and onnx's checker and reference evaluator must accept models that use
// only standard ops.
func TestBundledModelsForTargets(t *testing.T) {
	if onnxruntime, _ := testEnvironment(t); onnxruntime == "" {
		t.Skip("needs onnxruntime: make fetch")
	}
	dir := t.TempDir()
	args := []string{filepath.Join("testdata", "reference.py")}
	for _, to := range []string{"ort", "onnx"} {
		for name, all := range bundled(t) {
			t.Run(to+"/"+name, func(t *testing.T) {
				recorded := filepath.Join("..", "..", "models", name+".npz")
				out := filepath.Join(dir, to+"-"+name+".onnx")
				flags := []string{"apply", strings.TrimSuffix(recorded, ".npz") + ".onnx", "-o", out, "--json",
					"--target", to, "--golden", recorded}
				if withoutCPUKernels(name) {
					flags = append(flags, "--evaluator")
				}
				r := report(t, flags...)
				got, want := fusedBlocks(r), takenBlocks(to, name, all)
				for _, s := range r.Sites {
					if strings.HasSuffix(s.Reason, " already") {
						got = got.Plus(models.Of(s.Op))
					}
				}
				if all.MoE > want.MoE {
					want.GLU = max(want.GLU, got.GLU)
				}
				if got != want {
					t.Errorf("took %+v, want %+v", got, want)
				}
				if r.Target != to || r.Refused() > 0 {
					t.Errorf("target %q, %d refused", r.Target, r.Refused())
				}
				for _, s := range r.Sites {
					if (s.Status == rewrite.Fused) != (len(s.Emits) > 0) && s.Kernel == to ||
						(s.Status == rewrite.Open) != strings.HasPrefix(s.Reason, "target "+to) {
						t.Errorf("%s at %s is %s, emits %v: %s", s.Pattern, s.Node, s.Status, s.Emits, s.Reason)
					}
				}
				if again := report(t, "match", out, "--json", "--target", to); again.Fused() != 0 {
					t.Errorf("a second pass takes %d sites more", again.Fused())
				}
				switch {
				case to == "ort":
					sameOnHardInputs(t, name, flags[1], out)
				case withoutCPUKernels(name):
					args = append(args, out, "-")
				default:
					args = append(args, out, recorded)
				}
			})
		}
	}
	python := pythonWithONNX(t)
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
