package inline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// nested returns a model that calls a function, which calls another one: with an If whose condition is known, if
// branches is set.
func nested(branches bool) *onnx.Model {
	b := onnxtest.New(20)
	b.Model.ImportOpset("local", 1)
	define := func(name string, write func(f *onnxtest.Builder, x *onnx.Value) *onnx.Value) {
		f := onnx.NewFunction("local", name, "", 20)
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: "local", Version: 1})
		body := &onnxtest.Builder{Graph: f.Body}
		f.Body.AddOutput(write(body, f.Body.AddInput("x", onnx.Type{})))
		b.Model.Functions = append(b.Model.Functions, f)
	}
	define("Inner", func(f *onnxtest.Builder, x *onnx.Value) *onnx.Value {
		if !branches {
			return f.Op("Tanh", x)
		}
		branch := func(op string) *onnx.Graph {
			g := f.Graph.NewSubgraph(op)
			g.AddOutput((&onnxtest.Builder{Graph: g}).Op(op, x))
			return g
		}
		one := f.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		return f.Op("If", one, onnx.GraphAttr("then_branch", branch("Tanh")),
			onnx.GraphAttr("else_branch", branch("Exp")))
	})
	define("Outer", func(f *onnxtest.Builder, x *onnx.Value) *onnx.Value { return f.Op("local:Inner", x) })
	b.Output(b.Op("local:Outer", b.Op("local:Outer", b.Input("x", onnx.Float, "n", 2))))
	return b.Model
}

// TestResults: what Run reports, whether the facts that it found still hold, and whether it can be undone.
func TestResults(t *testing.T) {
	find := func(*onnx.Graph, *infer.Facts) ([]*patterns.Match, []*patterns.Miss) { return nil, nil }
	for _, c := range []struct {
		mode            Mode
		branches        bool
		want            string
		facts, restores bool
	}{
		{None, false, "local:Outer local:Outer", false, false},
		{"", false, "local:Outer local:Outer", false, false},
		{Auto, false, "2 functions, 4 calls, 0 branches: :Tanh :Tanh", true, true},
		{All, false, "2 functions, 4 calls, 0 branches: :Tanh :Tanh", true, false},
		{Auto, true, "2 functions, 4 calls, 2 branches: :Tanh :Tanh", false, true},
		{All, true, "2 functions, 4 calls, 2 branches: :Tanh :Tanh", false, false},
	} {
		m := nested(c.branches)
		before := m.Graph.Text()
		a := &Inliner{Model: m, Mode: c.mode, Find: find, Skips: func(*onnx.Function) bool { return false }}
		r, err := a.Run()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r.Report != nil {
			got = fmt.Sprintf("%d functions, %d calls, %d branches: ", r.Report.Functions, r.Report.Calls,
				r.Report.Branches)
		}
		for i, n := range m.Graph.Nodes {
			if i > 0 {
				got += " "
			}
			got += n.Domain + ":" + n.OpType
		}
		if got != c.want || (r.Facts != nil) != c.facts || (r.Restore != nil) != c.restores {
			t.Errorf("%q with branches %v: %s, facts %v, undo %v", c.mode, c.branches, got, r.Facts != nil,
				r.Restore != nil)
		}
		if r.Facts != nil && r.Facts.DataType(m.Graph.Nodes[0].Outputs[0]) != onnx.Float {
			t.Errorf("%q: the facts are of another model", c.mode)
		}
		if r.Restore == nil {
			continue
		}
		if err := r.Restore(); err != nil || m.Graph.Text() != before || len(m.Functions) != 2 {
			t.Errorf("%q: %v, restored to %s", c.mode, err, m.Graph.Text())
		}
	}
}

// TestCalled lists the functions that a model calls, directly, in branches and through others.
func TestCalled(t *testing.T) {
	m := nested(false)
	m.Functions = append(m.Functions, onnx.NewFunction("local", "Unused", "", 20),
		onnx.NewFunction("other", "Inner", "", 20), onnx.NewFunction("local", "Inner", "half", 20))
	called := Called(m)
	for i, want := range []bool{true, true, false, false, false} {
		if called[m.Functions[i]] != want {
			t.Errorf("%s is called: %v", m.Functions[i].Name, !want)
		}
	}
}

// TestCallsForExperts: of functions that multiply, those between a choice and the first value that combines everything
// that depends on it.
func TestCallsForExperts(t *testing.T) {
	functions := map[functionID]*onnx.Function{}
	for _, name := range []string{"A", "B", "C", "D"} {
		functions[idOf("local", name, "")] = onnx.NewFunction("local", name, "", 20)
	}
	for name, c := range map[string]struct {
		write func(b *onnxtest.Builder, x, k *onnx.Value)
		want  string
	}{
		"no choice": {func(b *onnxtest.Builder, x, _ *onnx.Value) { b.Op("local:A", x) }, ""},
		"before and after": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", b.Op("local:A", x), k)
			y := b.Op("Mul", b.Op("local:B", b.Op("Gather", x, top[1])), top[0])
			b.Op("local:C", b.Op("Neg", y))
		}, "B"},
		"the call combines them": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", x, k)
			b.Op("local:C", b.Op("local:B", x, top[0], top[1]))
		}, "B"},
		"a product combines them": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", x, k)
			b.Op("local:C", b.Op("MatMul", b.Op("Cast", top[1]), top[0]))
		}, ""},
		"nothing multiplies before": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", x, k)
			pair := b.Op("Concat", top[0], top[1])
			b.Op("local:C", pair)
		}, "C"},
		"a choice that nothing reads": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			b.Ops(2, "TopK", b.Op("local:A", x), k)
			b.Op("local:B", x)
		}, ""},
		"two choices": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			one := b.Op("ArgMax", x)
			y := b.Op("local:A", b.Op("Gather", x, one))
			two := b.Op("ArgMax", y)
			b.Op("local:B", b.Op("local:B", b.Op("Gather", y, two)))
		}, "A B"},
		"in a branch": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", x, k)
			then := b.Graph.NewSubgraph("then")
			then.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: then}).Op("local:B", top[0], top[1]))
			b.Op("local:C", b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", then)))
		}, "B"},
		"of another model": {func(b *onnxtest.Builder, x, k *onnx.Value) {
			top := b.Ops(2, "TopK", x, k)
			b.Op("other:A", top[0], top[1])
		}, ""},
	} {
		b := onnxtest.New(20)
		c.write(b, b.Input("x", onnx.Float, "n", 4), b.Ints(2))
		var got []string
		for _, f := range calledForExperts(b.Graph, functions) {
			got = append(got, f.Name)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}
