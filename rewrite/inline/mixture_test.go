package inline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
)

// TestInlineExperts: among functions without calls, those are inlined that choose, or that multiply between a choice
// and the sum.
func TestInlineExperts(t *testing.T) {
	m := onnx.New(10, 21)
	m.ImportOpset("local", 1)
	define := func(name, op string, outputs int) {
		f := onnx.NewFunction("local", name, "", 21)
		in := []*onnx.Value{f.Body.AddInput("a", onnx.Type{}), f.Body.AddInput("b", onnx.Type{})}
		var out []*onnx.Value
		for range outputs {
			out = append(out, f.Body.NewValue("y"))
		}
		f.Body.AddNode(op, in, out)
		for _, v := range out {
			f.Body.AddOutput(v)
		}
		m.Functions = append(m.Functions, f)
	}
	for _, name := range []string{"Attention", "Expert", "Masked", "Branch", "Later"} {
		define(name, "MatMul", 1)
	}
	define("Scale", "Mul", 1)
	define("Router", "TopK", 2)
	call := func(g *onnx.Graph, domain, op string, outputs int, in ...*onnx.Value) []*onnx.Value {
		var out []*onnx.Value
		for range outputs {
			out = append(out, g.NewValue("v"))
		}
		g.AddNode(op, in, out).Domain = domain
		return out
	}
	g := m.Graph
	x := g.AddInput("x", onnxtest.Type(onnx.Float, "n", 4))
	w := g.AddInitializer(onnx.NewFloat32s("w", []int64{4, 4}, make([]float32, 16)))
	k := g.AddInitializer(onnx.NewInt64s("k", []int64{2}))
	x = call(g, "local", "Attention", 1, x, w)[0]
	chosen := call(g, "local", "Router", 2, call(g, "", "MatMul", 1, x, w)[0], k)
	pair := call(g, "", "Concat", 1, chosen...) // all that depends on the choice, before the experts
	chosen = call(g, "", "Split", 2, pair...)
	weights := call(g, "local", "Scale", 1, chosen[0], chosen[0])[0]
	rows := call(g, "", "Gather", 1, x, chosen[1])[0] // experts read selected rows or all rows
	sum := call(g, "", "Add", 1, call(g, "", "Mul", 1, call(g, "local", "Masked", 1, x, w)[0], weights)[0],
		call(g, "local", "Expert", 1, rows, w)[0])[0]
	then := g.NewSubgraph("then")
	then.AddOutput(call(then, "local", "Branch", 1, sum, chosen[1])[0])
	cond := call(g, "", "Equal", 1, chosen[1], chosen[1])[0]
	branched := g.NewValue("v")
	g.AddNode("If", []*onnx.Value{cond}, []*onnx.Value{branched}, onnx.GraphAttr("then_branch", then),
		onnx.GraphAttr("else_branch", then))
	y := call(g, "local", "Later", 1, branched, w)[0]
	g.AddOutput(y)
	applytest.Plan(t, m, rewrite.Request{Inline: inline.Auto})
	var left []string
	for _, f := range m.Functions {
		left = append(left, f.Name)
	}
	slices.Sort(left)
	if got := strings.Join(left, " "); got != "Attention Later Scale" {
		t.Errorf("left are %s", got)
	}
}
