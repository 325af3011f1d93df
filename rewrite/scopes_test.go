package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// swiglu writes silu(gate)*up into any graph.
func swiglu(g *onnx.Graph, gate, up *onnx.Value) *onnx.Value {
	op := func(opType string, in ...*onnx.Value) *onnx.Value {
		v := g.NewValue(opType)
		g.AddNode(opType, in, []*onnx.Value{v})
		return v
	}
	return op("Mul", op("Mul", gate, op("Sigmoid", gate)), up)
}

// branches is a model with an If whose branches hold a SwiGLU of outer values each.
func branches(t *testing.T) *onnx.Model {
	b := newBuilder(t, 20, onnx.Float)
	gate, up := b.input("gate", 2, 16), b.input("up", 2, 16)
	flag := b.g.AddInput("flag", shapeType(onnx.Bool))
	var attrs []*onnx.Attribute
	for _, name := range []string{"then_branch", "else_branch"} {
		s := onnx.New(8, 20).Graph
		s.Parent = b.g
		s.Name = name
		y := swiglu(s, gate, up)
		s.AddOutput(y)
		attrs = append(attrs, &onnx.Attribute{Name: name, Type: onnx.AttrGraph, Graph: s})
	}
	y := b.g.NewValue("y")
	b.g.AddNode("If", []*onnx.Value{flag}, []*onnx.Value{y}, attrs...)
	b.output(y, 2, 16)
	return b.m
}

func TestSubgraphsAreRewritten(t *testing.T) {
	m := branches(t)
	r := apply(t, m)
	if ops := countOps(m); r.Fused() != 2 || ops["GLU"] != 2 || ops["Sigmoid"] != 0 {
		t.Errorf("%v, %+v", ops, r.Sites)
	}
}

// onnxruntime does not resolve overloads inside function bodies, so what stands there is left alone, with the reason.
func TestFunctionBodiesAreRefusedWithAReason(t *testing.T) {
	b := newBuilder(t, 20, onnx.Float)
	f := onnx.NewFunction("local", "Gated", "", 20)
	gate, up := f.Body.AddInput("gate", onnx.Type{}), f.Body.AddInput("up", onnx.Type{})
	f.Body.AddOutput(swiglu(f.Body, gate, up))
	b.m.Functions = append(b.m.Functions, f)
	b.m.ImportOpset("local", 1)
	x := b.input("x", 2, 16)
	y := b.op("Gated", x, x)
	y.Producer.Domain = "local"
	b.output(y, 2, 16)
	s := judgeOne(t, b.m, &patterns.Match{Pattern: "SwiGLU", Op: "GLU", Inputs: []*onnx.Value{gate, up},
		Outputs: []*onnx.Value{f.Body.Outputs[0]}, Attributes: gluAttributes("silu", 1, 0, 0)})
	if s.Status != Refused || !strings.Contains(s.Reason, "function local.Gated") {
		t.Errorf("%s: %s", s.Status, s.Reason)
	}
}

func TestForeignFunctionOfTheSameName(t *testing.T) {
	m := block(t, 20, onnx.Float)
	f := onnx.NewFunction(fused.Domain, "GLU", "silu", 20)
	f.Body.AddOutput(f.Body.AddInput("gate", onnx.Type{}))
	m.Functions = append(m.Functions, f)
	r := apply(t, m)
	if p := r.pattern("SwiGLU"); p.Refused != 2 || countOps(m)["GLU"] != 0 {
		t.Errorf("%+v", p)
	}
}
