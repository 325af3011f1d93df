package rewrite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// swiglu writes silu(gate)*up into any graph.
func swiglu(g *onnx.Graph, gate, up value) value {
	op := func(opType string, in ...value) value {
		v := g.NewValue(opType)
		g.AddNode(opType, in, []value{v})
		return v
	}
	return op("Mul", op("Mul", gate, op("Sigmoid", gate)), up)
}

// branches is a model with an If, each branch of which contains a SwiGLU of outer values.
func branches(t *testing.T) *onnx.Model {
	b := rewritetest.New(t, 20, onnx.Float)
	gate, up := b.In("gate", 2, 16), b.In("up", 2, 16)
	flag := b.Input("flag", onnx.Bool)
	var attrs []*onnx.Attribute
	for _, name := range []string{"then_branch", "else_branch"} {
		s := onnx.New(8, 20).Graph
		s.Parent = b.Graph
		s.Name = name
		y := swiglu(s, gate, up)
		s.AddOutput(y)
		attrs = append(attrs, &onnx.Attribute{Name: name, Type: onnx.AttrGraph, Graph: s})
	}
	y := b.Graph.NewValue("y")
	b.Graph.AddNode("If", []value{flag}, []value{y}, attrs...)
	b.Out(y, 2, 16)
	return b.Model
}

func TestSubgraphsAreRewritten(t *testing.T) {
	m := branches(t)
	r := apply(t, m)
	if ops := rewritetest.CountOps(m); r.Fused() != 2 || ops["GLU"] != 2 || ops["Sigmoid"] != 0 {
		t.Errorf("%v, %+v", ops, r.Sites)
	}
}

// inFunctions is a model whose main graph calls local.Outer<i> for each activation, which calls local.Gated<i>, whose
// body is that gated activation.
func inFunctions(t *testing.T, activations ...func(g *onnx.Graph, gate, up value) value) *onnx.Model {
	b := rewritetest.New(t, 20, onnx.Float)
	b.Model.ImportOpset("local", 1)
	x, up := b.In("x", "n", 16), b.In("up", "n", 16)
	for i, write := range activations {
		names := []string{fmt.Sprintf("Gated%d", i), fmt.Sprintf("Outer%d", i)}
		for k, name := range names {
			f := onnx.NewFunction("local", name, "", 20)
			g, u := f.Body.AddInput("gate", onnx.Type{}), f.Body.AddInput("up", onnx.Type{})
			if k == 0 {
				f.Body.AddOutput(write(f.Body, g, u))
			} else {
				f.Opsets = append(f.Opsets, onnx.Opset{Domain: "local", Version: 1})
				y := f.Body.NewValue("y")
				f.Body.AddNode(names[0], []value{g, u}, []value{y}).Domain = "local"
				f.Body.AddOutput(y)
			}
			b.Model.Functions = append(b.Model.Functions, f)
		}
		x = b.Op(names[1], x, up)
		x.Producer.Domain = "local"
	}
	b.Out(x, "n", 16)
	return b.Model
}

func geglu(g *onnx.Graph, gate, up value) value {
	a, y := g.NewValue("gelu"), g.NewValue("y")
	g.AddNode("Gelu", []value{gate}, []value{a})
	g.AddNode("Mul", []value{a, up}, []value{y})
	return y
}

// onnxruntime finds no overload from inside a function's body. Ops there are called as the overload "", which can have
// one definition.
func TestFunctionBodiesCallOneVariant(t *testing.T) {
	m := inFunctions(t, swiglu, geglu, swiglu)
	want := rewritetest.Evaluate(t, m)
	r := apply(t, m)
	if r.pattern("SwiGLU").Fused != 2 || r.pattern("GeGLU").Refused != 1 || m.Function(fused.Domain, "GLU", "") == nil {
		t.Fatalf("%+v", r.Sites)
	}
	for _, s := range r.Sites {
		if s.Status == Refused && !strings.Contains(s.Reason,
			`function local.Gated1, where onnxruntime finds only one variant of mojo.GLU, which is "silu"`) {
			t.Errorf("refused: %s", s.Reason)
		}
	}
	f := m.Function("local", "Gated0", "")
	if n := f.Body.Nodes[0]; len(f.Body.Nodes) != 1 || n.OpType != "GLU" || n.Overload != "" ||
		f.Opset(fused.Domain) != fused.Version {
		t.Errorf("the body is %s", f.Text())
	}
	for name, w := range want {
		if d, scale := prove.Distance(w.F, rewritetest.Evaluate(t, m)[name].F); d > 16*prove.Spacing(onnx.Float,
			scale) {
			t.Errorf("%s differs by %g", name, d)
		}
	}
	if r := apply(t, m); r.Changed {
		t.Errorf("the second run changed the model: %+v", r.Sites)
	}
}

func TestForeignFunctionOfTheSameName(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	f := onnx.NewFunction(fused.Domain, "GLU", "silu", 20)
	f.Body.AddOutput(f.Body.AddInput("gate", onnx.Type{}))
	m.Functions = append(m.Functions, f)
	r := apply(t, m)
	if p := r.pattern("SwiGLU"); p.Refused != 2 || rewritetest.CountOps(m)["GLU"] != 0 {
		t.Errorf("%+v", p)
	}
}
