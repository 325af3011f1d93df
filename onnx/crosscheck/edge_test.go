package crosscheck

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// write writes a model and returns its path.
func write(t *testing.T, m *onnx.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

func op(t *testing.T, m *onnx.Model, opType string, in []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	t.Helper()
	v := m.Graph.NewValue(opType)
	m.Graph.AddNode(opType, in, []*onnx.Value{v}, attrs...)
	return v
}

func scalarInput(m *onnx.Model) *onnx.Value {
	return m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 4}}})
}

// Tensor attributes are compared if the second reader supports their type, including bool.
func TestTensorAttributes(t *testing.T) {
	m := onnx.New(10, 20)
	x := scalarInput(m)
	yes, err := onnx.NewTensor("", onnx.Bool, []int64{1}, []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	half, err := onnx.NewTensor("", onnx.Float16, []int64{1}, []byte{0, 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*onnx.Tensor{yes, half, onnx.NewFloat32s("", []int64{1}, []float32{2.5}),
		onnx.NewInt64s("", []int64{7})} {
		m.Graph.AddOutput(op(t, m, "ConstantOfShape", []*onnx.Value{op(t, m, "Shape", []*onnx.Value{x})},
			onnx.TensorAttr("value", c)))
	}
	path := write(t, m)
	r, err := File(path, m)
	if err != nil || r.Undecoded != "" || len(r.LeftOut) != 1 ||
		!strings.HasPrefix(r.LeftOut[0], "1 × attribute value of ConstantOfShape") {
		t.Fatal(r, err)
	}
	no, _ := onnx.NewTensor("", onnx.Bool, []int64{1}, []byte{0})
	m.Graph.Nodes[1].Attributes[0].Tensor = no
	if _, err := File(path, m); err == nil ||
		!strings.Contains(err.Error(), "attribute value is tensor[1] [true], expected tensor[1] [false]") {
		t.Errorf("%v", err)
	}
}

// Graphs in attributes and function bodies are compared as well.
func TestInnerGraphs(t *testing.T) {
	m := onnx.New(10, 20)
	x := scalarInput(m)
	branch := func() (*onnx.Graph, *onnx.Node) {
		inner := onnx.New(10, 20)
		v := inner.Graph.NewValue("v")
		n := inner.Graph.AddNode("Abs", []*onnx.Value{x}, []*onnx.Value{v})
		inner.Graph.AddOutput(v)
		return inner.Graph, n
	}
	yes, abs := branch()
	no, _ := branch()
	m.Graph.AddOutput(op(t, m, "If", []*onnx.Value{x},
		&onnx.Attribute{Name: "then_branch", Type: onnx.AttrGraph, Graph: yes},
		&onnx.Attribute{Name: "else_branch", Type: onnx.AttrGraph, Graph: no}))
	path := write(t, m)
	r, err := File(path, m)
	if err != nil || r.Undecoded != "" || r.Nodes != 3 || r.Edges != 3 || r.Graphs != 3 || len(r.LeftOut) != 0 {
		t.Error(r, err)
	}
	abs.OpType = "Neg"
	if _, err := File(path, m); err == nil ||
		!strings.Contains(err.Error(), "then_branch of node \"\" (If): node \"\" (Neg) is a Abs") {
		t.Error(err)
	}
}

// A function body's edges, and references to the function's attributes, are compared.
func TestFunctionBodies(t *testing.T) {
	for name, damage := range map[string]func(n *onnx.Node){
		"input": func(n *onnx.Node) { n.SetInput(0, n.Graph.Inputs[len(n.Graph.Inputs)-1]) },
		"reference": func(n *onnx.Node) {
			n.Attributes = append(n.Attributes, onnx.RefAttr("more", onnx.AttrInt, "axis"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(t, "../../models/llama-dynamo-fp32.onnx")
			if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true,
				Verify: rewrite.VerifyOff}); err != nil {
				t.Fatal(err)
			}
			path := write(t, m)
			if r := demand(t, path, m); r.Graphs < 3 {
				t.Fatal(r)
			}
			damage(m.Functions[0].Body.Nodes[len(m.Functions[0].Body.Nodes)-1])
			if _, err := File(path, m); err == nil || !strings.Contains(err.Error(), "function mojo.") {
				t.Error(err)
			}
		})
	}
}

// Unsupported parts are listed, and the rest is compared.
func TestLeftOut(t *testing.T) {
	m := onnx.New(10, 20)
	x := scalarInput(m)
	m.Graph.AddOutput(op(t, m, "Many", []*onnx.Value{x},
		&onnx.Attribute{Name: "all", Type: onnx.AttrTensors, Tensors: []*onnx.Tensor{onnx.NewInt64s("", []int64{1})}}))
	r, err := File(write(t, m), m)
	if err != nil || r.Undecoded != "" || r.Nodes != 1 || len(r.LeftOut) != 1 ||
		!strings.Contains(r.String(), "all of Many (tensors)") {
		t.Error(r, err)
	}
}

// A graph without nodes, which the second reader rejects, is not a failure.
func TestUndecoded(t *testing.T) {
	m := onnx.New(10, 20)
	m.Graph.AddOutput(scalarInput(m))
	r, err := File(write(t, m), m)
	if err != nil || r.Undecoded == "" || !strings.Contains(r.String(), "nothing was compared") {
		t.Error(r, err)
	}
}

// Omitted inputs and outputs, an input read twice, and two outputs.
func TestOmitted(t *testing.T) {
	m := onnx.New(10, 20)
	x := scalarInput(m)
	g := m.Graph
	a, b := g.NewValue("a"), g.NewValue("b")
	n := g.NewNode("TwoOfThem", []*onnx.Value{x, nil, x})
	n.TakeOutput(0, a)
	n.TakeOutput(2, b)
	g.Nodes = append(g.Nodes, n)
	g.AddOutput(op(t, m, "Mul", []*onnx.Value{b, b}))
	g.AddOutput(op(t, m, "RandomNormal", nil, onnx.IntsAttr("shape", []int64{2})))
	r, err := File(write(t, m), m)
	if err != nil || r.Undecoded != "" || r.Nodes != 3 || r.Edges != 2*2+2+1 {
		t.Error(r, err)
	}
}

// counter counts the bytes that are read through it.
type counter struct {
	io.ReadSeeker
	read int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadSeeker.Read(b)
	c.read += n
	return n, err
}

// Weights are skipped by seeking, wherever they are.
func TestWeightsAreNotRead(t *testing.T) {
	m := onnx.New(10, 20)
	x := scalarInput(m)
	const size = 8 << 20
	w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{size / 4}, make([]float32, size/4)))
	c := op(t, m, "Constant", nil,
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{size / 4}, make([]float32, size/4))))
	m.Graph.AddOutput(op(t, m, "Sum", []*onnx.Value{x, w, c}))
	b, err := os.ReadFile(write(t, m))
	if err != nil {
		t.Fatal(err)
	}
	f := &counter{ReadSeeker: bytes.NewReader(b)}
	r, err := check(f, int64(len(b)), "m.onnx", m)
	if err != nil || r.Nodes != 1 || r.Edges != 3 || len(b) < 2*size || f.read > 1<<20 {
		t.Errorf("%v, %v, read %d of %d bytes", r, err, f.read, len(b))
	}
}

// A truncated or damaged file is an error, not a panic.
func TestDamagedFiles(t *testing.T) {
	const path = "../../models/qwen3-dynamo-fp32.onnx"
	m := read(t, path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(b); i += len(b) / 97 {
		if r, err := check(bytes.NewReader(b[:i]), int64(i), path, m); err == nil && r.Undecoded == "" {
			t.Errorf("cut off after %d bytes: %v", i, r)
		}
		damaged := bytes.Clone(b)
		damaged[i] ^= 0x55
		check(bytes.NewReader(damaged), int64(len(b)), path, m)
	}
}

// The ONNX node tests cover every op and kind of attribute. Everything that both readers support must be equal.
func TestNodeTests(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join(os.Getenv("MOJO_ONNX_NODE_TESTS"), "*", "model.onnx"))
	if os.Getenv("MOJO_ONNX_NODE_TESTS") == "" || len(paths) == 0 {
		t.Skip("no node tests: make them with tools/onnx-node-tests.py, and set MOJO_ONNX_NODE_TESTS")
	}
	whole, partly := 0, 0
	undecoded := map[string]int{}
	for _, path := range paths {
		m := read(t, path)
		r, err := File(path, m)
		switch {
		case err != nil:
			t.Error(err)
		case r.Undecoded != "":
			undecoded[r.Undecoded]++
		case len(r.LeftOut) > 0:
			partly++
		default:
			whole++
		}
	}
	t.Logf("%d models equal, %d without some attributes, not decoded: %v", whole, partly, undecoded)
	if whole < len(paths)*9/10 {
		t.Errorf("%d of %d models were compared whole", whole, len(paths))
	}
}
