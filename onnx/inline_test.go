package onnx_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

func read(t *testing.T, path string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func evaluated(m *onnx.Model, in map[string]*reference.Tensor) (map[string]*reference.Tensor, error) {
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		return nil, err
	}
	return e.Run(in)
}

// equal returns an error that describes the bitwise difference of two sets of results.
func equal(a, b map[string]*reference.Tensor) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d results and %d", len(a), len(b))
	}
	for name, x := range a {
		y := b[name]
		if y == nil || x.DataType != y.DataType || !slices.Equal(x.Shape, y.Shape) || !slices.Equal(x.I, y.I) ||
			!slices.Equal(x.S, y.S) ||
			!slices.EqualFunc(x.F, y.F, func(p, q float64) bool { return p == q || math.IsNaN(p) && math.IsNaN(q) }) {
			return fmt.Errorf("%s: %v and %v", name, x, y)
		}
	}
	return nil
}

func nestInputs(flag int64) map[string]*reference.Tensor {
	return map[string]*reference.Tensor{
		"x":    {DataType: onnx.Float, Shape: []int{2, 4}, F: []float64{1, -2, 3, 0.5, -0.25, 4, 0, -8}},
		"flag": {DataType: onnx.Bool, Shape: []int{}, I: []int64{flag}},
	}
}

// sameAsCalls evaluates the nest unchanged and as m, in both branches.
func sameAsCalls(t *testing.T, m *onnx.Model) {
	t.Helper()
	nest := read(t, "testdata/nest.onnx")
	for flag := range int64(2) {
		want, err := evaluated(nest, nestInputs(flag))
		if err != nil {
			t.Fatal(err)
		}
		got, err := evaluated(m, nestInputs(flag))
		if err == nil {
			err = equal(got, want)
		}
		if err != nil {
			t.Errorf("flag %d: %v\n%s", flag, err, m.Graph.Text())
		}
	}
}

// written writes the model and reads it again. The reader rejects duplicate names.
func written(t *testing.T, m *onnx.Model) *onnx.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inlined.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

func nodeNamed(t *testing.T, m *onnx.Model, name string) *onnx.Node {
	t.Helper()
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if n.Name == name {
				return n
			}
		}
	}
	t.Fatalf("no node is called %q:\n%s", name, m.Graph.Text())
	return nil
}

func TestInlineFunctions(t *testing.T) {
	m := read(t, "testdata/nest.onnx")
	calls, err := m.InlineFunctions(nil)
	if err != nil || calls != 4*4+3+1 { // Layer with its 3 calls of Scale 4 times; Pass, Scale, Twice and its Scale
		t.Fatalf("%d calls, %v", calls, err)
	}
	m = written(t, m)
	sameAsCalls(t, m)
	if len(m.Functions) > 0 || len(m.Opsets) != 1 {
		t.Errorf("there are still the functions %v and imports %v", m.Functions, m.Opsets)
	}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if refers := slices.ContainsFunc(n.Attributes, func(a *onnx.Attribute) bool {
				return a.RefName != ""
			}); refers || n.Domain != "" {
				t.Errorf("left: %s", n.Text())
			}
		}
	}
	clip := nodeNamed(t, m, "in_then/deep/clip")
	if clip.Inputs[0].Name != "in_then/deep/leaky" || len(clip.Inputs) > 1 && clip.Inputs[1] != nil ||
		clip.Outputs[0].Name != "in_then/r" {
		t.Errorf("names of values and an omitted input: %s", clip.Text())
	}
	if a := nodeNamed(t, m, "first/scale/leak").Attributes; len(a) > 0 {
		t.Errorf("the attribute low has no value, and alpha is %v", a)
	}
	if a := nodeNamed(t, m, "second/again/leak").AttrFloat("alpha", 0); a != 2 {
		t.Errorf("alpha is %v", a)
	}
	leak := nodeNamed(t, m, "first/again/leak")
	if want := []onnx.Entry{{Key: "from", Value: "Scale"}, {Key: "layer", Value: "0"}}; !slices.Equal(leak.Metadata,
		want) {
		t.Errorf("metadata %v, expected those of the node, then of the calls %v", leak.Metadata, want)
	}
	typ, ok := leak.Inputs[0].Type()
	if !ok || typ.DataType != onnx.Float || len(typ.Dims) != 2 || typ.Dims[0].Param != "" || typ.Dims[1].Value != 4 {
		t.Errorf("the type of %s is %v", leak.Inputs[0].Name, typ)
	}
	if bytes, err := os.ReadFile(m.Path); err != nil || strings.Contains(string(bytes), "inner::Scale") {
		t.Errorf("types of values of functions that are gone: %v", err)
	}
}

// TestInlineSome: kept functions are called as before, and calls in their bodies are inlined.
func TestInlineSome(t *testing.T) {
	for _, test := range []struct {
		kept, functions string
		calls           int
	}{
		{"outer.Twice inner.Scale", "inner.Scale outer.Twice", 4 + 1},
		{"inner.Scale", "inner.Scale", 4 + 2},
		{"outer.Layer inner.Scale", "inner.Scale outer.Layer", 1 + 1},
		{"idle.Unused inner.Pass", "inner.Pass", 19},
	} {
		m := read(t, "testdata/nest.onnx")
		calls, err := m.InlineFunctions(func(f *onnx.Function) bool {
			return slices.Contains(strings.Fields(test.kept), f.Domain+"."+f.Name)
		})
		if err != nil || calls != test.calls {
			t.Errorf("%s: %d calls, expected %d, %v", test.kept, calls, test.calls, err)
			continue
		}
		m = written(t, m)
		var names []string
		for _, f := range m.Functions {
			names = append(names, f.Domain+"."+f.Name)
		}
		slices.Sort(names)
		if strings.Join(names, " ") != test.functions {
			t.Errorf("%s: there are %v", test.kept, names)
		}
		sameAsCalls(t, m)
	}
}

// chain makes functions of domain d, each of which calls the next one twice, and a model that calls the first.
func chain(n int, edit func(i int, f *onnx.Function)) *onnx.Model {
	m := onnx.New(10, 21)
	m.ImportOpset("d", 1)
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	call := func(g *onnx.Graph, name string, x *onnx.Value) *onnx.Value {
		y := g.NewValue("y")
		g.AddNode(name, []*onnx.Value{x}, []*onnx.Value{y}).Domain = "d"
		return y
	}
	for i := range n {
		f := onnx.NewFunction("d", fmt.Sprint("F", i), "", 21)
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: "d", Version: 1})
		v := f.Body.AddInput("x", onnx.Type{})
		if i+1 < n {
			v = call(f.Body, fmt.Sprint("F", i+1), call(f.Body, fmt.Sprint("F", i+1), v))
		}
		f.Body.AddOutput(v)
		edit(i, f)
		m.Functions = append(m.Functions, f)
	}
	m.Graph.AddOutput(call(m.Graph, "F0", x))
	return m
}

func TestInlineErrors(t *testing.T) {
	nothing := func(int, *onnx.Function) {}
	add := func(f *onnx.Function, op string, inputs ...*onnx.Value) *onnx.Node {
		return f.Body.AddNode(op, inputs, []*onnx.Value{f.Body.NewValue("v")})
	}
	few := chain(3, nothing)
	few.Graph.Nodes[0].Inputs = append(few.Graph.Nodes[0].Inputs, nil)
	omitted := chain(3, nothing)
	omitted.Graph.Nodes[0].SetInput(0, nil)
	for want, m := range map[string]*onnx.Model{
		"more than 262144 nodes": chain(40, nothing),
		"function d.F1 imports version 20 of domain \"\", and the model version 21": chain(2,
			func(i int, f *onnx.Function) {
				if f.Opsets[0].Version -= int64(i); i == 1 {
					add(f, "Neg", f.Body.Inputs[0])
				}
			}),
		"calls itself": chain(2, func(i int, f *onnx.Function) { add(f, "F0", f.Body.Inputs[0]).Domain = "d" }),
		"has 2 inputs and 1 outputs, but function d.F0 has 1 and 1": few,
		"which the call does not pass":                              omitted,
		"uses domain \"other\", which neither it nor the model imports": chain(2, func(i int, f *onnx.Function) {
			add(f, "Op").Domain = "other"
		}),
	} {
		if _, err := m.InlineFunctions(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
	passed := chain(2, func(i int, f *onnx.Function) {
		if i == 0 {
			f.Attributes = []string{"p"}
			f.Body.Nodes[0].Attributes = []*onnx.Attribute{onnx.RefAttr("q", onnx.AttrFloat, "p")}
			return
		}
		f.Defaults = []*onnx.Attribute{onnx.FloatAttr("q", 1)}
	})
	_, err := passed.InlineFunctions(func(f *onnx.Function) bool { return f.Name == "F0" })
	if want := `function d.F0 passes its attribute "p" on to "q" of d.F1`; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("expected %q, got %v", want, err)
	}
}

// TestInlineImports: imports of inlined bodies are added, and imports of dropped functions are not.
func TestInlineImports(t *testing.T) {
	m := chain(2, func(i int, f *onnx.Function) {
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: "com.microsoft", Version: 1},
			onnx.Opset{Domain: "unread", Version: 7})
		f.Body.AddNode("Gelu", f.Body.Inputs, []*onnx.Value{f.Body.NewValue("gelu")}).Domain = "com.microsoft"
	})
	if _, err := m.InlineFunctions(nil); err != nil {
		t.Fatal(err)
	}
	if want := []onnx.Opset{{Version: 21}, {Domain: "com.microsoft", Version: 1}}; !slices.Equal(m.Opsets, want) {
		t.Errorf("imports %v, expected %v", m.Opsets, want)
	}
}

// TestInlineBranches: one branch replaces an If node; initializers of the branch stay with it.
func TestInlineBranches(t *testing.T) {
	for flag := range int64(2) {
		m := read(t, "testdata/nest.onnx")
		want, err := evaluated(m, nestInputs(flag))
		if err != nil {
			t.Fatal(err)
		}
		count, err := m.InlineBranches(func(n *onnx.Node) *onnx.Graph {
			if n.Name != "if_flag" {
				return nil
			}
			return n.Attributes[1-flag].Graph // then, else
		})
		if err != nil || count != 1 {
			t.Fatalf("%d nodes, %v", count, err)
		}
		m = written(t, m)
		got, err := evaluated(m, nestInputs(flag))
		if err == nil {
			err = equal(got, want)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, m.Graph.Text())
		}
		for _, n := range m.Graph.Nodes {
			if n.OpType == "If" {
				t.Errorf("left: %s", n.Text())
			}
		}
	}
}

// TestInlineAsOnnx inlines models whose ops call the standard's own definitions, and compares the results with those of
// the calls and of onnx.inliner.
func TestInlineAsOnnx(t *testing.T) {
	python, tests := os.Getenv("MOJO_PYTHON"), os.Getenv("MOJO_ONNX_NODE_TESTS")
	if python == "" {
		python = "../build/venv/bin/python"
	}
	if tests == "" {
		tests = "../build/onnx-node-tests"
	}
	if err := exec.Command(python, "-c", "import onnx.inliner").Run(); err != nil {
		t.Skip("no Python with onnx; set MOJO_PYTHON")
	}
	dir := t.TempDir()
	if out, err := exec.Command(python, "testdata/inline.py", dir, tests).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if now, err := os.ReadFile(filepath.Join(dir, "nest.onnx")); err != nil ||
		string(now) != string(must(os.ReadFile("testdata/nest.onnx"))) {
		t.Errorf("testdata/nest.onnx is not what testdata/inline.py writes: %v", err)
	}
	files := must(filepath.Glob(filepath.Join(dir, "*.inlined.onnx")))
	compared, lacking := 0, 0
	for _, theirs := range files {
		name := strings.TrimSuffix(filepath.Base(theirs), ".inlined.onnx")
		m, err := onnx.Read(filepath.Join(dir, name+".onnx"))
		if err != nil {
			lacking++ // definitions without the outputs that the call omits
			continue
		}
		defer m.Close()
		in := nestInputs(1)
		if name != "nest" {
			if in = recordedInputs(m, filepath.Join(tests, name, "test_data_set_0")); in == nil {
				lacking++ // values that are not tensors
				continue
			}
		}
		calls, errCalls := evaluated(m, in)
		count, err := m.InlineFunctions(nil)
		if err != nil || count == 0 {
			t.Errorf("%s: %d calls, %v", name, count, err)
			continue
		}
		results, errTheirs := evaluated(read(t, theirs), in)
		if errCalls != nil && errTheirs != nil {
			lacking++ // ops that the evaluator lacks
			continue
		}
		ours, err := evaluated(written(t, m), in)
		if err == nil && errCalls == nil {
			err = equal(ours, calls)
		}
		if err == nil && errTheirs == nil {
			err = equal(ours, results)
		}
		if err != nil || errCalls != nil || errTheirs != nil {
			t.Errorf("%s: %v; calls: %v; onnx.inliner: %v", name, err, errCalls, errTheirs)
			continue
		}
		compared++
	}
	t.Logf("%d models of the ONNX node tests with functions inlined as onnx.inliner does; %d more are not for the "+
		"evaluator", compared, lacking)
	if _, err := os.Stat(tests); err == nil && compared < 300 {
		t.Errorf("only %d models were compared", compared)
	}
}

// recordedInputs reads the inputs of a node test, nil if they are not tensors.
func recordedInputs(m *onnx.Model, dir string) map[string]*reference.Tensor {
	in := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("input_%d.pb", i)))
		if err != nil {
			return nil
		}
		if _, ok := v.Type(); !ok {
			return nil
		}
		p, err := onnx.UnmarshalTensor(b)
		if err != nil {
			return nil
		}
		if in[v.Name], err = reference.FromONNX(p); err != nil {
			return nil
		}
	}
	return in
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
