package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/rogpeppe/go-internal/testscript"
)

// inFunctions makes a model whose norm, gated activation and softcap stand in a function that a second function calls.
func inFunctions() *onnx.Model {
	m := onnx.New(10, 20)
	m.ImportOpset("local", 1)
	f := onnx.NewFunction("local", "Inner", "", 20)
	op := func(opType string, in ...*onnx.Value) *onnx.Value {
		v := f.Body.NewValue(opType)
		n := f.Body.AddNode(opType, in, []*onnx.Value{v})
		n.Name = "inner_" + v.Name
		return v
	}
	constant := func(a *onnx.Attribute) *onnx.Value {
		v := op("Constant")
		v.Producer.Attributes = []*onnx.Attribute{a}
		return v
	}
	number := func(x float32) *onnx.Value { return constant(onnx.FloatAttr("value_float", x)) }
	x, scale, up := f.Body.AddInput("x", onnx.Type{}), f.Body.AddInput("scale", onnx.Type{}), f.Body.AddInput("up", onnx.Type{})
	mean := op("ReduceMean", op("Pow", x, number(2)), constant(onnx.IntsAttr("value_ints", []int64{-1})))
	norm := op("Mul", scale, op("Mul", x, op("Reciprocal", op("Sqrt", op("Add", mean, number(1e-6))))))
	gate := op("Mul", op("Mul", norm, op("Sigmoid", norm)), up)
	f.Body.AddOutput(op("Mul", number(3), op("Tanh", op("Div", gate, number(3)))))
	outer := onnx.NewFunction("local", "Outer", "", 20)
	outer.Opsets = append(outer.Opsets, onnx.Opset{Domain: "local", Version: 1})
	var in []*onnx.Value
	for _, name := range []string{"x", "scale", "up"} {
		in = append(in, outer.Body.AddInput(name, onnx.Type{}))
	}
	y := outer.Body.NewValue("y")
	outer.Body.AddNode("Inner", in, []*onnx.Value{y}).Domain = "local"
	outer.Body.AddOutput(y)
	m.Functions = append(m.Functions, f, outer)

	typ := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "n"}, {Value: 8}}}
	w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{8}, []float32{1, 2, 3, 4, 5, 6, 7, 8}))
	h, u := m.Graph.AddInput("x", typ), m.Graph.AddInput("up", typ)
	for range 2 {
		v := m.Graph.NewValue("h")
		m.Graph.AddNode("Outer", []*onnx.Value{h, w, u}, []*onnx.Value{v}).Domain = "local"
		h = v
	}
	h.SetType(typ)
	m.Graph.AddOutput(h)
	return m
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

// TestSitesInFunctions: what is fused in the body of a function runs in onnxruntime, with kernels and without, and the checker
// takes it. onnxruntime does not look at overloads there.
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
	r := report(t, "apply", model, "-o", out, "--json", "--inline", "none", "--inline", "none", "--patterns", file, "--kernels-lib", kernels, "--onnxruntime", library)
	if fusedBy(r, "RMSNorm") != 1 || fusedBy(r, "SwiGLU") != 1 || fusedBy(r, "Softcap") != 1 {
		t.Fatalf("%+v", r.Sites)
	}
	x := []float32{1, -2, 3, 0.5, -0.25, 4, 2, -1, 0, 1e-3, 5, -6, 7, 1, 1, 1}
	inputs := []*onnx.Tensor{onnx.NewFloat32s("x", []int64{2, 8}, x), onnx.NewFloat32s("up", []int64{2, 8}, append(x[8:16:16], x[:8]...))}
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
	for name, got := range map[string]*onnx.Tensor{"bodies": run(out), "kernels": run(out, ort.WithKernelLibrary(kernels))} {
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
