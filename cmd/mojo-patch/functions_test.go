package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/rogpeppe/go-internal/testscript"
)

// inFunctions returns a model with a norm, a gated activation and a softcap in a function that another function calls.
func inFunctions() *onnx.Model {
	b := onnxtest.New(20)
	b.Model.ImportOpset("local", 1)
	inner := onnx.NewFunction("local", "Inner", "", 20)
	f := onnxtest.Builder{Graph: inner.Body}
	parameters := func(f *onnx.Function) (list []*onnx.Value) {
		for _, name := range []string{"x", "scale", "up"} {
			list = append(list, f.Body.AddInput(name, onnx.Type{}))
		}
		return list
	}
	in := parameters(inner)
	x, scale, up := in[0], in[1], in[2]
	mean := f.Op("ReduceMean", f.Op("Pow", x, 2.0), []int64{-1})
	norm := f.Op("Mul", scale, f.Op("Mul", x, f.Op("Reciprocal", f.Op("Sqrt", f.Op("Add", mean, 1e-6)))))
	gate := f.Op("Mul", f.Op("Mul", norm, f.Op("Sigmoid", norm)), up)
	f.Output(f.Op("Mul", 3.0, f.Op("Tanh", f.Op("Div", gate, 3.0))))
	outer := onnx.NewFunction("local", "Outer", "", 20)
	outer.Opsets = append(outer.Opsets, onnx.Opset{Domain: "local", Version: 1})
	o := onnxtest.Builder{Graph: outer.Body}
	o.Output(o.Op("local:Inner", parameters(outer)))
	b.Model.Functions = append(b.Model.Functions, inner, outer)

	w := b.Floats([]int64{8}, 1, 2, 3, 4, 5, 6, 7, 8)
	h, u := b.Input("x", onnx.Float, "n", 8), b.Input("up", onnx.Float, "n", 8)
	for range 2 {
		h = b.Op("local:Outer", h, w, u)
	}
	h.SetType(onnxtest.Type(onnx.Float, "n", 8))
	b.Output(h)
	return b.Model
}

// writeFunctions writes that model: functions FILE.
func writeFunctions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: functions FILE")
	}
	ts.Check(onnx.Write(ts.MkAbs(args[0]), inFunctions()))
}

const softcap = "function my.Softcap(x) -> y <cap> {\n y = Mul(cap, Tanh(Div(x, cap)))\n}\n" +
	"pattern Softcap(x) -> y {\n y = Mul($cap, Tanh(Div(x, $cap)))\n} => my.Softcap(x; cap=cap)\n"

// TestSitesInFunctions demands that ops fused in a function body run in onnxruntime, with and without kernels, and pass
// the checker. onnxruntime ignores overloads there.
func TestSitesInFunctions(t *testing.T) {
	library, kernels := orttest.Library(t), orttest.Kernels(t)
	dir := t.TempDir()
	model := filepath.Join(dir, "functions.onnx")
	if err := onnx.Write(model, inFunctions()); err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(dir, "softcap.pat"), filepath.Join(dir, "patched.onnx")
	if err := os.WriteFile(file, []byte(softcap), 0o600); err != nil {
		t.Fatal(err)
	}
	r := report(t, "apply", model, "-o", out, "--json", "--inline", "none", "--inline", "none", "--patterns", file,
		"--kernels-lib", kernels, "--onnxruntime", library)
	if fusedBy(r, "RMSNorm") != 1 || fusedBy(r, "SwiGLU") != 1 || fusedBy(r, "Softcap") != 1 {
		t.Fatalf("%+v", r.Sites)
	}
	x := []float32{1, -2, 3, 0.5, -0.25, 4, 2, -1, 0, 1e-3, 5, -6, 7, 1, 1, 1}
	inputs := []*onnx.Tensor{onnx.NewFloat32s("x", []int64{2, 8}, x),
		onnx.NewFloat32s("up", []int64{2, 8}, append(x[8:16:16], x[:8]...))}
	run := func(path string, options ...ort.Option) *onnx.Tensor {
		s, err := ort.Open(path, append(options, ort.WithLibrary(library))...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		y, err := s.Run(inputs)
		if err != nil {
			t.Fatal(err)
		}
		return y[0]
	}
	want := run(model)
	for name, got := range map[string]*onnx.Tensor{"bodies": run(out),
		"kernels": run(out, ort.WithKernelLibrary(kernels))} {
		s, err := golden.Compare(got, want, golden.Tolerance{Abs: 1e-5, Rel: 1e-5})
		if err != nil || !s.Passed {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	python := filepath.Join("..", "..", "build", "venv", "bin", "python")
	if p := os.Getenv("MOJO_PYTHON"); p != "" {
		python = p
	}
	if exec.Command(python, "-c", "import onnx").Run() == nil {
		if text, err := exec.Command(python, "-c", checker, out).CombinedOutput(); err != nil {
			t.Error(fmt.Errorf("%w\n%s", err, text))
		}
	}
}
