package fit_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// BenchmarkFits finds the blocks of graphs with and without the fitted ops: SmolLM2, in which patterns match all
// blocks, and 20,000 nodes of blocks that no pattern matches.
func BenchmarkFits(b *testing.B) {
	smol, err := onnx.Read(filepath.Join("..", "..", "models", "smollm2", "graph.onnx"), onnx.AllowMissingData())
	if err != nil {
		b.Fatal(err)
	}
	defer smol.Close()
	for _, m := range []struct {
		name  string
		model *onnx.Model
	}{{"SmolLM2", smol}, {"unlisted", unlisted(20000).Model}} {
		facts := infer.Analyze(m.model)
		for _, set := range []struct {
			name string
			*patterns.Set
		}{{"with", patterns.Builtin()}, {"without", withoutFits()}} {
			b.Run(m.name+"/"+set.name, func(b *testing.B) {
				for b.Loop() {
					matches, _ := set.Find(m.model.Graph, facts)
					b.ReportMetric(float64(len(matches)), "sites")
				}
			})
		}
	}
}

func withoutFits() *patterns.Set {
	return patterns.Builtin().Select(func(p *patterns.Pattern) bool { return !strings.HasPrefix(p.Name, "fit:") })
}

// graph builds small graphs.
type graph struct{ *onnxtest.Builder }

func (g *graph) weight(n int) *onnx.Value {
	w := make([]float32, n)
	for i := range w {
		w[i] = 1 + float32(i)/8
	}
	return g.Floats([]int64{int64(n)}, w...)
}

// unlisted returns layers of norms and gated units that no pattern lists.
func unlisted(nodes int) *graph {
	g := &graph{onnxtest.New(20)}
	stack(g, g.Input("x", onnx.Float, "batch", "sequence", 32), nodes/16)
	return g
}

// stack adds the given number of layers, each with a norm and a gated unit.
func stack(g *graph, x *onnx.Value, layers int) {
	for range layers {
		mean := g.Op("Div", g.Op("Einsum", x, x, onnx.StringAttr("equation", "bsc,bsc->bs")), 32.0)
		root := g.Op("Unsqueeze", g.Op("Sqrt", g.Op("Add", mean, 1e-6)), []int64{-1})
		n := g.Op("Mul", g.Op("Div", x, root), g.weight(32))
		gate, up := g.Op("MatMul", n, g.matrix(32, 32)), g.Op("MatMul", n, g.matrix(32, 32))
		unit := g.Op("Mul", g.Op("Div", gate, g.Op("Add", g.Op("Exp", g.Op("Neg", gate)), 1.0)), up)
		x = g.Op("Add", x, g.Op("MatMul", unit, g.matrix(32, 32)))
	}
	g.Output(x)
}

// TestNormsOfOneRoot has two norms whose rows are divided by the same root, like tf2onnx after it merges equal nodes.
func TestNormsOfOneRoot(t *testing.T) {
	g := &graph{onnxtest.New(20)}
	x := g.Input("x", onnx.Float, "batch", "sequence", 32)
	mean := g.Op("Div", g.Op("Einsum", x, x, onnx.StringAttr("equation", "bsc,bsc->bs")), 32.0)
	root := g.Op("Unsqueeze", g.Op("Reciprocal", g.Op("Sqrt", g.Op("Add", mean, 1e-6))), []int64{-1})
	for range 2 {
		g.Output(g.Op("Mul", x, g.Op("Mul", root, g.weight(32))))
	}
	matches, _ := patterns.Builtin().Find(g.Model.Graph, infer.Analyze(g.Model))
	if len(matches) != 2 || matches[0].Op != "RMSNorm" || matches[1].Op != "RMSNorm" ||
		matches[0].Outputs[0] == matches[1].Outputs[0] {
		t.Errorf("%d matches: %+v", len(matches), matches)
	}
}

// TestFactorOfHalfScale has a norm in float16 whose rows are multiplied by 3: the product with the scale is float32,
// since float16 would round it.
func TestFactorOfHalfScale(t *testing.T) {
	for divisor, want := range map[float64]string{32: "RMSNorm float16", 32.0 / 9: "RMSNorm float32"} {
		g := &graph{onnxtest.New(20)}
		cast := func(v *onnx.Value, to onnx.DataType) *onnx.Value {
			return g.Op("Cast", v, onnx.IntAttr("to", int64(to)))
		}
		x := cast(g.Input("x", onnx.Float16, "batch", "sequence", 32), onnx.Float)
		squares := g.Op("Einsum", x, x, onnx.StringAttr("equation", "bsc,bsc->bs"))
		root := g.Op("Sqrt", g.Op("Add", g.Op("Div", squares, divisor), 1e-6))
		scale := cast(cast(g.weight(32), onnx.Float16), onnx.Float)
		g.Output(cast(g.Op("Mul", g.Op("Div", x, g.Op("Unsqueeze", root, []int64{-1})), scale), onnx.Float16))
		facts := infer.Analyze(g.Model)
		got := ""
		matches, _ := patterns.Builtin().Find(g.Model.Graph, facts)
		for _, m := range matches {
			n := m.Replacement.Nodes[slices.IndexFunc(m.Replacement.Nodes,
				func(n *onnx.Node) bool { return n.OpType == m.Op })]
			within := facts.Within(m.Replacement, m.Inputs)
			got += m.Op + " " + within.DataType(n.Inputs[1]).String()
		}
		if got != want {
			t.Errorf("sum of squares by %v: %s, expected %s", divisor, got, want)
		}
	}
}

func (g *graph) matrix(rows, columns int) *onnx.Value {
	w := make([]float32, rows*columns)
	for i := range w {
		w[i] = float32(i*i%101)/101 - 0.5
	}
	return g.Floats([]int64{int64(rows), int64(columns)}, w...)
}
