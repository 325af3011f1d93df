package onnx

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// checkUses compares every use list with the inputs of the nodes.
func checkUses(t *testing.T, m *Model) {
	t.Helper()
	want := map[*Value]map[Use]bool{}
	count := 0
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			for i, v := range n.Inputs {
				if v != nil {
					if want[v] == nil {
						want[v] = map[Use]bool{}
					}
					want[v][Use{n, i}] = true
					count++
				}
			}
		}
	}
	listed := 0
	for _, g := range m.Graphs() {
		for _, v := range g.values {
			for _, u := range v.Uses() {
				listed++
				if !want[v][u] {
					t.Errorf("value %q lists a use by node %q that does not read it", v.Name, u.Node.Name)
				}
			}
		}
	}
	if listed != count {
		t.Errorf("%d uses listed, %d inputs read", listed, count)
	}
}

func nestedModel(t *testing.T) *Model {
	t.Helper()
	body := &onnxpb.GraphProto{Name: ptr("body"), Node: []*onnxpb.NodeProto{node("i = Add(a,x)"), node("k = Mul(i,i)")},
		Output: valueInfos("k", "b")}
	p := modelOf(&onnxpb.GraphProto{Name: ptr("g"), Input: valueInfos("x"), Output: valueInfos("z"),
		Node: []*onnxpb.NodeProto{node("a = Abs(x)"), node("b = Neg(a)"),
			node("c = If(x)", graphAttribute("then_branch", body)),
			node("z = Relu(x)"), node("d = Mul(c,c)")}})
	m, err := Read(writeMessage(t, p))
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestRemoveNodes(t *testing.T) {
	m := nestedModel(t)
	g := m.Graph
	a, b, c, d := g.Value("a"), g.Value("b"), g.Value("c"), g.Value("d")
	checkUses(t, m)
	if !b.IsOutput() {
		t.Error("b is an output of the body")
	}
	for name, test := range map[string]struct {
		dead []*Node
		want string
	}{
		"read by a node":           {[]*Node{c.Producer}, `output "c" is read by node "n_d" (Mul)`},
		"read in a body":           {[]*Node{a.Producer, b.Producer}, "cannot remove"},
		"output of the graph":      {[]*Node{g.Value("z").Producer}, `output "z" is a graph output`},
		"output of a body outside": {[]*Node{b.Producer}, `output "b" is a graph output`},
	} {
		dead := map[*Node]bool{}
		for _, n := range test.dead {
			dead[n] = true
		}
		if err := g.RemoveNodes(dead); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v", name, err)
		}
		checkUses(t, m)
	}
	must(t, g.RemoveNodes(map[*Node]bool{c.Producer: true, d.Producer: true}))
	checkUses(t, m)
	if b.IsOutput() || len(b.Uses()) > 0 || len(a.Uses()) != 1 || g.Value("c") != nil {
		t.Errorf("the body still uses b (output %v) or a (%v)", b.IsOutput(), a.Uses())
	}
	must(t, g.RemoveNodes(map[*Node]bool{a.Producer: true, b.Producer: true}))
	checkUses(t, m)
	must(t, Write(filepath.Join(t.TempDir(), "out.onnx"), m))
}

func TestSort(t *testing.T) {
	m := New(10, 21)
	g := m.Graph
	x := g.AddInput("x", Type{DataType: Float})
	a, b := g.NewValue("a"), g.NewValue("b")
	second := g.AddNode("Neg", []*Value{a}, []*Value{b})
	first := g.AddNode("Abs", []*Value{x}, []*Value{a})
	third := g.AddNode("Add", []*Value{a, b}, []*Value{g.NewValue("c")})
	must(t, g.Sort())
	if g.Nodes[0] != first || g.Nodes[1] != second || g.Nodes[2] != third {
		t.Errorf("order:\n%s", g.Text())
	}
	first.SetInput(0, b)
	if err := g.Sort(); err == nil || !strings.Contains(err.Error(), "cycle through") ||
		strings.Contains(err.Error(), "(Add)") {
		t.Errorf("cycle: %v", err) // Add waits for the cycle but is not on it
	}
}

func TestNamesStayUnique(t *testing.T) {
	p := modelOf(&onnxpb.GraphProto{Input: valueInfos("x"), ValueInfo: valueInfos("gone"),
		Node: []*onnxpb.NodeProto{
			node("y = If(x)", graphAttribute("then_branch",
				&onnxpb.GraphProto{Node: []*onnxpb.NodeProto{node("inner = Abs(x)")}}))}})
	m, err := Read(writeMessage(t, p))
	must(t, err)
	defer m.Close()
	for _, name := range []string{"x", "y", "inner", "gone"} {
		if v := m.Graph.NewValue(name); v.Name != name+"_1" {
			t.Errorf("a second %q is called %q", name, v.Name)
		}
	}
}

// TestRetyped gives other types to values with two declarations: an input that is an output, and an output with an
// entry in value_info. A type that is taken back leaves the file's declarations.
func TestRetyped(t *testing.T) {
	p := modelOf(&onnxpb.GraphProto{Input: valueInfos("x"), ValueInfo: valueInfos("y"), Output: valueInfos("y", "x"),
		Node: []*onnxpb.NodeProto{node("y = Abs(x)")}})
	for _, v := range slices.Concat(p.Graph.Input, p.Graph.ValueInfo, p.Graph.Output) {
		v.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(Float))}}}
	}
	m, err := Read(writeMessage(t, p))
	must(t, err)
	defer m.Close()
	declared := func() (list []DataType) {
		path := filepath.Join(t.TempDir(), "out.onnx")
		must(t, Write(path, m))
		for _, v := range message(t, path).Graph.Output {
			list = append(list, DataType(v.GetType().GetTensorType().GetElemType()))
		}
		return list
	}
	restore := []func(){m.Graph.Value("x").Save(), m.Graph.Value("y").Save()}
	m.Graph.Value("x").SetType(Type{DataType: Float16})
	m.Graph.Value("y").SetType(Type{DataType: BFloat16})
	if got := declared(); !slices.Equal(got, []DataType{BFloat16, Float16}) {
		t.Errorf("the outputs are declared as %v", got)
	}
	for _, f := range restore {
		f()
	}
	if got := declared(); !slices.Equal(got, []DataType{Float, Float}) {
		t.Errorf("then the outputs are declared as %v", got)
	}
}

func TestRename(t *testing.T) {
	m := New(10, 21)
	g := m.Graph
	g.Name = "graph"
	x := g.AddInput("x", Type{DataType: Float})
	w := g.AddInitializer(NewFloat32s("w", []int64{1}, []float32{1}))
	y := g.NewValue("y")
	g.AddNode("Add", []*Value{x, w}, []*Value{y})
	g.AddOutput(y)
	for _, r := range []struct {
		v    *Value
		name string
	}{{x, "input"}, {w, "weight"}, {y, "x"}} { // x is free by then
		if err := g.Rename(r.v, r.name); err != nil {
			t.Fatal(err)
		}
	}
	for _, taken := range []string{"input", "weight", ""} {
		if g.Rename(y, taken) == nil {
			t.Errorf("y can be named %q", taken)
		}
	}
	b, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	read, err := readBytes(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := read.Graph.Nodes[0]
	if n.Input(0).Name != "input" || !n.Input(0).IsInput || n.Input(1).Name != "weight" || n.Input(1).Const == nil ||
		read.Graph.Outputs[0].Name != "x" {
		t.Errorf("written as %s(%s, %s)", read.Graph.Outputs[0].Name, n.Input(0).Name, n.Input(1).Name)
	}
}
