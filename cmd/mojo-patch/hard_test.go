package main

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// sameOnHardInputs compares a patched model with its original on padding, with a past and in a long context. If the CPU
// provider lacks kernels, both are evaluated without rounding, because rounding alone may make a router choose another
// expert.
func sameOnHardInputs(t *testing.T, name, model, patched string) {
	t.Helper()
	if withoutCPUKernels(name) {
		sameWithoutRoundings(t, model, patched)
		return
	}
	args := []string{"diff", model, patched, "--hard"}
	if strings.HasSuffix(name, "-fp16") { // one rounding moves such a model by about the tolerance
		args = append(args, "--sensitivity")
	}
	if name == "llama-dynamo23-fp32" { // onnxruntime's RotaryEmbedding needs tables for each row
		args = append(args, "--dim", "batch=1")
	}
	var out, err bytes.Buffer
	if code := execute(args, &out, &err); code != cli.ExitDone {
		t.Errorf("mojo-patch %s: exit code %d\n%s", strings.Join(args, " "), code, err.String())
	}
	short := name == "absolute-fp16" || name == "whisperdecoder-dynamo-fp32" // 64 positions end before the long context
	if got := strings.Contains(err.String(), "does not run with"); got != short {
		t.Errorf("left out of what %s was to be run on:\n%s", name, err.String())
	}
}

func sameWithoutRoundings(t *testing.T, paths ...string) {
	t.Helper()
	var outputs [][]*reference.Tensor
	var first *onnx.Model
	for _, path := range paths {
		m, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if first == nil {
			first = m
		}
		e, err := reference.New(m, reference.Options{Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		hard, err := golden.HardInputs(first, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []*reference.Tensor
		for _, h := range hard {
			inputs := map[string]*reference.Tensor{}
			for _, x := range h.Inputs {
				if inputs[x.Name], err = reference.FromONNX(x); err != nil {
					t.Fatal(err)
				}
			}
			got, err := e.Run(inputs)
			if err != nil {
				t.Fatalf("%s, %s: %v", path, h.Name, err)
			}
			all = append(all, got[first.Graph.Outputs[0].Name])
		}
		outputs = append(outputs, all)
	}
	for i, want := range outputs[0] {
		worst, greatest := 0.0, 0.0
		for k, w := range want.F {
			worst, greatest = max(worst, math.Abs(outputs[1][i].F[k]-w)), max(greatest, math.Abs(w))
		}
		if !(worst <= 1e-9*greatest) {
			t.Errorf("%s differs from %s by %g of %g on case %d", paths[1], paths[0], worst, greatest, i)
		}
	}
}

// TestCachesOnHardInputs compares decoders with caches of every kind.
func TestCachesOnHardInputs(t *testing.T) {
	if onnxruntime, kernels := testEnvironment(t); onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	generated := filepath.Join("..", "..", "llm", "generate", "testdata")
	caches := []string{"", "--cache static", "--cache static --past-length", "--cache static --past-length=rows"}
	for model, caches := range map[string][]string{
		filepath.Join("..", "..", "models", "llama-kv-dynamo-fp32.onnx"):          caches,
		filepath.Join("..", "..", "models", "llama-merged-ts-fp32.onnx"):          caches,
		filepath.Join("..", "..", "models", "deepseek3naive-kv-dynamo-fp32.onnx"): {"--mla-cache"},
		filepath.Join(generated, "positions-fp32.onnx"):                           caches,
		filepath.Join(generated, "absolute-fp16.onnx"):                            caches,
	} {
		for _, cache := range caches {
			name := strings.TrimSuffix(filepath.Base(model), ".onnx")
			t.Run(name+" "+cache, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "patched.onnx")
				args := append([]string{"apply", model, "-o", out, "--json"}, strings.Fields(cache)...)
				static := strings.HasPrefix(cache, "--cache")
				if r := report(t, args...); fusedBy(r, "Attention") < 2 || (r.Cache != nil) != static {
					t.Errorf("%d sites of attention, cache %+v", fusedBy(r, "Attention"), r.Cache)
				}
				sameOnHardInputs(t, name, model, out)
			})
		}
	}
}
