package inline_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
)

// caller adds a function to the model, in domain local, that calls the given functions (DOMAIN.NAME) one after the
// other.
func caller(m *onnx.Model, name string, calls ...string) *onnx.Function {
	f := onnx.NewFunction("local", name, "", 21)
	v := f.Body.AddInput("x", onnx.Type{})
	for _, c := range calls {
		v = callTo(f.Body, c, v)
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: c[:strings.LastIndex(c, ".")], Version: 1})
	}
	y := f.Body.NewValue("y")
	f.Body.AddNode("Neg", []*onnx.Value{v}, []*onnx.Value{y})
	f.Body.AddOutput(y)
	m.Functions = append(m.Functions, f)
	return f
}

func functionNames(m *onnx.Model) string {
	var names []string
	for _, f := range m.Functions {
		names = append(names, f.Name)
	}
	return strings.Join(names, " ")
}

func callTo(g *onnx.Graph, name string, x *onnx.Value) *onnx.Value {
	y := g.NewValue("called")
	i := strings.LastIndex(name, ".")
	g.AddNode(name[i+1:], []*onnx.Value{x}, []*onnx.Value{y}).Domain = name[:i]
	return y
}

// TestInlineModes checks which functions are inlined.
func TestInlineModes(t *testing.T) {
	build := func() *onnx.Model {
		m := onnx.New(10, 21)
		for _, d := range []string{"local", "mojo", "com.microsoft"} {
			m.ImportOpset(d, 1)
		}
		caller(m, "Inner")
		caller(m, "Outer", "local.Inner", "mojo.Fused", "com.microsoft.Known")
		caller(m, "Leaf")
		caller(m, "OverFused", "mojo.Fused")
		caller(m, "Below")
		caller(m, "Other", "local.Below").Opsets[1].Version = 2
		caller(m, "Uncalled", "local.Leaf")
		caller(m, "Known").Domain = "com.microsoft"
		caller(m, "Fused").Domain = "mojo"
		v := m.Graph.AddInput("x", onnxtest.Type(onnx.Float, "n", 4))
		for _, c := range []string{"Outer", "Inner", "Leaf", "OverFused"} {
			v = callTo(m.Graph, "local."+c, v)
		}
		m.Graph.AddOutput(v)
		return m
	}
	for _, test := range []struct {
		mode inline.Mode
		edit func(*onnx.Model)
		left string
		want *inline.Report
	}{
		{inline.None, nil, "Inner Outer Leaf OverFused Below Other Uncalled Known Fused", nil},
		{inline.Auto, nil, "Leaf OverFused Known Fused", &inline.Report{Functions: 2, Calls: 3}},
		{inline.All, nil, "Fused", &inline.Report{Functions: 5, Calls: 6}},
		// Nothing is inlined into or out of a function that stays.
		{inline.Auto, func(m *onnx.Model) { m.Graph.Nodes[2].OpType = "Other" }, "OverFused Below Other Known Fused",
			&inline.Report{Functions: 2, Calls: 3}},
		{inline.Auto, func(m *onnx.Model) {
			m.Graph.Nodes[0].OpType = "Leaf"
		}, "Inner Outer Leaf OverFused Below Other Uncalled Known Fused", nil},
	} {
		m := build()
		if test.edit != nil {
			test.edit(m)
		}
		before := functionNames(m)
		plan := applytest.Plan(t, m, rewrite.Request{Inline: test.mode})
		r := plan.Report
		if left := functionNames(m); left != test.left {
			t.Errorf("%s: %s are left, expected %s", test.mode, left, test.left)
		}
		if (r.Inlined == nil) != (test.want == nil) || r.Inlined != nil && *r.Inlined != *test.want {
			t.Errorf("%s: %+v, expected %+v", test.mode, r.Inlined, test.want)
		}
		// Nothing is fused: inlining only for the search is undone.
		want := before
		if test.mode == inline.All {
			want = test.left
		}
		if err := plan.Replace(); err != nil || functionNames(m) != want ||
			test.mode == inline.Auto && r.Inlined != nil {
			t.Errorf("%s: %v, %s are left in the end, expected %s", test.mode, err, functionNames(m), want)
		}
	}
}

// TestInlineKnownBranches: an If node of an inlined function is replaced by its branch if the rank decides, but not if
// a symbolic dimension does, although the result is the same in every world.
func TestInlineKnownBranches(t *testing.T) {
	branch := func(outer *onnx.Graph, name, op string) *onnx.Attribute {
		g := onnx.NewFunction("", name, "", 21).Body
		g.Name, g.Parent = name, outer
		v := g.NewValue(name)
		g.AddNode(op, []*onnx.Value{outer.Inputs[0]}, []*onnx.Value{v})
		g.AddOutput(v)
		return &onnx.Attribute{Name: name, Type: onnx.AttrGraph, Graph: g}
	}
	for _, left := range []bool{true, false} {
		m := onnx.New(10, 21)
		m.ImportOpset("local", 1)
		f := caller(m, "Inner")
		g := f.Body
		g.Nodes[0].SetInput(0, nil)
		op := func(opType string, attrs []*onnx.Attribute, in ...*onnx.Value) *onnx.Value {
			v := g.NewValue("v")
			g.AddNode(opType, in, []*onnx.Value{v}, attrs...)
			return v
		}
		number := func(n int64) *onnx.Value { return op("Constant", []*onnx.Attribute{onnx.IntAttr("value_int", n)}) }
		dim := op("Size", nil, op("Shape", nil, g.Inputs[0])) // the rank
		if left {
			dim = op("Gather", nil, op("Shape", nil, g.Inputs[0]), number(0))
		}
		chosen := op("If", []*onnx.Attribute{branch(g, "then_branch", "Abs"), branch(g, "else_branch", "Neg")},
			op("Greater", nil, dim, number(0)))
		g.Nodes[0].SetInput(0, chosen)
		if err := g.Sort(); err != nil {
			t.Fatal(err)
		}
		caller(m, "Outer", "local.Inner")
		y := callTo(m.Graph, "local.Outer", m.Graph.AddInput("x", onnxtest.Type(onnx.Float, "n", 4)))
		m.Graph.AddOutput(y)
		r := applytest.Plan(t, m, rewrite.Request{Inline: inline.Auto}).Report
		var ops []string
		for _, n := range m.Graph.Nodes {
			ops = append(ops, n.OpType)
		}
		if want := []string{"Abs", "Neg", "Neg"}; left == slices.Equal(ops, want) || left == (r.Inlined.Branches == 1) {
			t.Errorf("left %v: %v, %+v", left, ops, r.Inlined)
		}
		if err := onnx.Write(filepath.Join(t.TempDir(), "m.onnx"), m); err != nil {
			t.Error(err)
		}
	}
}

// TestWords: modes are named exactly, and a report counts what was inlined.
func TestWords(t *testing.T) {
	for _, mode := range []inline.Mode{inline.Auto, inline.All, inline.None} {
		if got, err := inline.ParseMode(string(mode)); got != mode || err != nil {
			t.Errorf("%s: %q, %v", mode, got, err)
		}
	}
	if got, err := inline.ParseMode("most"); got != "" || err == nil ||
		err.Error() != `unknown inline mode "most"; there are auto, all, none` {
		t.Errorf("%q, %v", got, err)
	}
	for want, r := range map[string]inline.Report{
		"inlined 1 function (2 calls)":                                 {Functions: 1, Calls: 2},
		"inlined 2 functions (1 call) and the branches of 1 If node":   {Functions: 2, Calls: 1, Branches: 1},
		"inlined 3 functions (4 calls) and the branches of 5 If nodes": {Functions: 3, Calls: 4, Branches: 5},
	} {
		if got := r.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
