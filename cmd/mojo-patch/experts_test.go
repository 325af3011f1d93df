package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// TestBrokenModels patches exports that onnxruntime cannot run on all of PyTorch's inputs. The patched files must
// return PyTorch's outputs, the report must name the repairs, and inspect must warn of them beforehand.
func TestBrokenModels(t *testing.T) {
	if onnxruntime, kernels := testEnvironment(t); onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	for name, want := range bundledIn(t, "broken", 2) {
		t.Run(name, func(t *testing.T) {
			model := filepath.Join("..", "..", "models", "broken", name+".onnx")
			recorded := strings.TrimSuffix(model, ".onnx") + ".npz"
			var out, err bytes.Buffer
			if code := execute([]string{"diff", model, "--golden", recorded}, &out, &err); code == cli.ExitDone {
				t.Fatal("the export is not broken: onnxruntime reproduces its goldens")
			}
			r := applyGolden(t, "broken", name, "--require", "--check-kernels", "on", "--verify", "all")
			if got := fusedBlocks(r); got != want {
				t.Errorf("fused %+v; PyTorch runs %+v", got, want)
			}
			if len(r.Repairs) != want.MoE {
				t.Errorf("%d repairs in the report: %+v", len(r.Repairs), r.Repairs)
			}
			out.Reset()
			if code := execute([]string{"inspect", model}, &out, &err); code != cli.ExitDone ||
				!strings.Contains(out.String()+err.String(), "warning: MoE") {
				t.Errorf("inspect: exit code %d, and no warning:\n%s%s", code, out.String(), err.String())
			}
		})
	}
}

// applyGolden patches a model of a folder of models/, and compares it with its recorded outputs.
func applyGolden(t *testing.T, folder, name string, flags ...string) *rewrite.Report {
	t.Helper()
	if onnxruntime, kernels := testEnvironment(t); onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	base := filepath.Join("..", "..", "models", folder, name)
	out := filepath.Join(t.TempDir(), "patched.onnx")
	args := []string{"apply", base + ".onnx", "-o", out, "--json", "--golden", base + ".npz"}
	return report(t, append(args, flags...)...)
}

// TestNearMisses patches layers that resemble routed experts. Only real experts may be fused, and the outputs must stay
// those of PyTorch.
func TestNearMisses(t *testing.T) {
	for name, want := range bundledIn(t, "near", 4) {
		t.Run(name, func(t *testing.T) {
			r := applyGolden(t, "near", name, "--verify", "all")
			if _, ok := want.Compare(fusedBlocks(r)); !ok {
				t.Errorf("fused %+v, there are %+v", fusedBlocks(r), want)
			}
			if name == "moe-absent-ts-fp32" {
				named := false
				for _, s := range r.Sites {
					named = named || s.Pattern == "MoE" && strings.Contains(s.Reason,
						"the router has 6 experts, the graph holds ")
				}
				if !named {
					t.Errorf("no reason names the absent experts: %+v", r.Sites)
				}
			}
		})
	}
}

// TestToolchains patches models of JAX, TensorFlow, spox and onnxscript. Without a flag, every block must be fused, and
// the outputs must stay the framework's.
func TestToolchains(t *testing.T) {
	for name, want := range bundledIn(t, "toolchains", 6) {
		t.Run(name, func(t *testing.T) {
			if got := fusedBlocks(applyGolden(t, "toolchains", name)); got != want {
				t.Errorf("fused %+v, there are %+v", got, want)
			}
		})
	}
}
