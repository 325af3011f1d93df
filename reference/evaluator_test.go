package reference

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func floats(v ...float64) *Tensor { return NewFloats(onnx.Float, []int{len(v)}, v) }

func typeOf(t onnx.DataType) onnx.Type { return onnx.Type{DataType: t} }

// scaleFunction is y = x*factor, with the factor from an attribute that has a default.
func scaleFunction(overload string, def float32) *onnx.Function {
	f := onnx.NewFunction("test", "Scale", overload, 20)
	f.Defaults = []*onnx.Attribute{onnx.FloatAttr("factor", def)}
	x := f.Body.AddInput("x", typeOf(onnx.Float))
	k, y := f.Body.NewValue("k"), f.Body.NewValue("y")
	f.Body.AddNode("Constant", nil, []*onnx.Value{k}, onnx.RefAttr("value_float", onnx.AttrFloat, "factor"))
	f.Body.AddNode("Mul", []*onnx.Value{x, k}, []*onnx.Value{y})
	f.Body.AddOutput(y)
	return f
}

func callNode(g *onnx.Graph, overload string, attrs ...*onnx.Attribute) *onnx.Node {
	n := g.NewNode("Scale", nil, attrs...)
	n.Domain, n.Overload = "test", overload
	return n
}

func TestFunctions(t *testing.T) {
	e := NewForOpset(20, []*onnx.Function{scaleFunction("", 2), scaleFunction("ten", 10)}, Options{})
	g := onnx.New(10, 20).Graph
	for _, c := range []struct {
		node *onnx.Node
		want float64
	}{
		{callNode(g, ""), 6}, {callNode(g, "ten"), 30}, {callNode(g, "", onnx.FloatAttr("factor", 5)), 15},
	} {
		out, err := e.Op(c.node, []*Tensor{floats(3)})
		if err != nil || out[0].F[0] != c.want {
			t.Errorf("overload %q: %v, %v, want %v", c.node.Overload, out, err, c.want)
		}
	}
	if _, err := e.Op(callNode(g, "none"), []*Tensor{floats(3)}); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "test.Scale") {
		t.Errorf("a missing function gives %v", err)
	}
	if _, err := e.Op(callNode(g, ""), []*Tensor{floats(3), floats(4)}); err == nil {
		t.Error("a surplus input is taken")
	}
}

// TestNestedFunction passes an attribute through two calls.
func TestNestedFunction(t *testing.T) {
	outer := onnx.NewFunction("test", "Outer", "", 20)
	outer.Attributes = []string{"by"}
	x := outer.Body.AddInput("x", typeOf(onnx.Float))
	y := outer.Body.NewValue("y")
	n := outer.Body.AddNode("Scale", []*onnx.Value{x}, []*onnx.Value{y}, onnx.RefAttr("factor", onnx.AttrFloat, "by"))
	n.Domain = "test"
	outer.Body.AddOutput(y)
	e := NewForOpset(20, []*onnx.Function{outer, scaleFunction("", 2)}, Options{})
	node := onnx.New(10, 20).Graph.NewNode("Outer", nil, onnx.FloatAttr("by", 7))
	node.Domain = "test"
	if out, err := e.Op(node, []*Tensor{floats(3)}); err != nil || out[0].F[0] != 21 {
		t.Errorf("got %v, %v, want 21", out, err)
	}
	node.Attributes = nil // the inner function's default applies
	if out, err := e.Op(node, []*Tensor{floats(3)}); err != nil || out[0].F[0] != 6 {
		t.Errorf("got %v, %v, want 6", out, err)
	}
}

func TestRecursionIsAnError(t *testing.T) {
	f := onnx.NewFunction("test", "Self", "", 20)
	x := f.Body.AddInput("x", typeOf(onnx.Float))
	y := f.Body.NewValue("y")
	f.Body.AddNode("Self", []*onnx.Value{x}, []*onnx.Value{y}).Domain = "test"
	f.Body.AddOutput(y)
	node := onnx.New(10, 20).Graph.NewNode("Self", nil)
	node.Domain = "test"
	if _, err := NewForOpset(20, []*onnx.Function{f}, Options{}).Op(node, []*Tensor{floats(1)}); err == nil ||
		!strings.Contains(err.Error(), "recursion") {
		t.Errorf("got %v", err)
	}
}

// halfModel is y = Cast(Cast(x, float16)*w, float32), z = x+x.
func halfModel() *onnx.Model {
	m := onnx.New(10, 20)
	g := m.Graph
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "n"}}})
	w, _ := onnx.NewTensor("w", onnx.Float16, []int64{}, []byte{0x01, 0x3c}) // 1 + 2^-10
	h, p, y, z := g.NewValue("h"), g.NewValue("p"), g.NewValue("y"), g.NewValue("z")
	g.AddNode("Cast", []*onnx.Value{x}, []*onnx.Value{h}, onnx.IntAttr("to", int64(onnx.Float16)))
	g.AddNode("Mul", []*onnx.Value{h, g.AddInitializer(w)}, []*onnx.Value{p})
	g.AddNode("Cast", []*onnx.Value{p}, []*onnx.Value{y}, onnx.IntAttr("to", int64(onnx.Float)))
	g.AddNode("Add", []*onnx.Value{x, x}, []*onnx.Value{z})
	g.AddOutput(y)
	g.AddOutput(z)
	return m
}

func TestExactSkipsRounding(t *testing.T) {
	x := 1 + 0x1p-12
	for _, c := range []struct {
		exact bool
		want  float64
	}{{false, 1 + 0x1p-10}, {true, x * (1 + 0x1p-10)}} {
		e, err := New(halfModel(), Options{Exact: c.exact})
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.Run(map[string]*Tensor{"x": floats(x)})
		if err != nil || out["y"].F[0] != c.want || out["y"].DataType != onnx.Float {
			t.Errorf("exact %v: got %v, %v, want %v", c.exact, out["y"].F, err, c.want)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	e, _ := New(halfModel(), Options{})
	for want, in := range map[string]map[string]*Tensor{
		`input "x" of the model is missing`: {},
		`no input "q"`:                      {"x": floats(1), "q": floats(1)},
		"declares float32":                  {"x": NewInts(onnx.Int64, []int{1}, []int64{1})},
		"declares 1 dimensions":             {"x": NewFloats(onnx.Float, []int{}, []float64{1})},
		"but 2 elements":                    {"x": NewFloats(onnx.Float, []int{3}, []float64{1, 2})},
	} {
		if _, err := e.Run(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", in, err, want)
		}
	}
	if _, err := NewForOpset(20, nil, Options{}).Run(nil); err == nil {
		t.Error("Run without a model succeeds")
	}
}

func TestRunIsConcurrent(t *testing.T) {
	e, _ := New(halfModel(), Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if out, err := e.Run(map[string]*Tensor{"x": floats(1, 2)}); err != nil ||
				!slices.Equal(out["z"].F, []float64{2, 4}) {
				t.Errorf("got %v, %v", out, err)
			}
		})
	}
	wg.Wait()
}

func TestEvalFillsEnvironment(t *testing.T) {
	m := halfModel()
	e := NewForOpset(20, nil, Options{})
	x := m.Graph.Inputs[0]
	env := map[*onnx.Value]*Tensor{x: floats(2)}
	if err := e.Eval(m.Graph.Nodes[:2], env); err != nil {
		t.Fatal(err)
	}
	if p := env[m.Graph.Value("p")]; p == nil || p.F[0] != 2+0x1p-9 || p.DataType != onnx.Float16 {
		t.Errorf("p is %v", p)
	}
	if err := e.Eval(m.Graph.Nodes[:1], map[*onnx.Value]*Tensor{}); err == nil ||
		!strings.Contains(err.Error(), `"x" has no value`) {
		t.Errorf("an absent input gives %v", err)
	}
}

func subgraph(of *onnx.Graph) *onnx.Graph {
	g := onnx.New(10, 20).Graph
	g.Parent = of
	return g
}

// TestSubgraphsSeeOuterValues has an If in a Loop, both reading values of the main graph: for i in 0..3: acc += i > 1 ?
// x : one.
func TestSubgraphsSeeOuterValues(t *testing.T) {
	m := onnx.New(10, 20)
	g := m.Graph
	x := g.AddInput("x", typeOf(onnx.Float))
	oneValue := g.AddInitializer(onnx.NewFloat32s("one", []int64{1}, []float32{1}))
	limit := g.AddInitializer(onnx.NewInt64s("limit", []int64{1}))
	trips := g.AddInitializer(onnx.NewInt64s("trips", []int64{4}))
	body := subgraph(g)
	i, cond := body.AddInput("i", typeOf(onnx.Int64)), body.AddInput("cond", typeOf(onnx.Bool))
	acc := body.AddInput("acc", typeOf(onnx.Float))
	big, sum, step := body.NewValue("big"), body.NewValue("sum"), body.NewValue("step")
	yes, no := subgraph(body), subgraph(body)
	for branch, v := range map[*onnx.Graph]*onnx.Value{yes: x, no: oneValue} {
		out := branch.NewValue("out")
		branch.AddNode("Identity", []*onnx.Value{v}, []*onnx.Value{out})
		branch.AddOutput(out)
	}
	body.AddNode("Greater", []*onnx.Value{i, limit}, []*onnx.Value{big})
	body.AddNode("If", []*onnx.Value{big}, []*onnx.Value{step},
		&onnx.Attribute{Name: "then_branch", Type: onnx.AttrGraph, Graph: yes},
		&onnx.Attribute{Name: "else_branch", Type: onnx.AttrGraph, Graph: no})
	body.AddNode("Add", []*onnx.Value{acc, step}, []*onnx.Value{sum})
	for _, v := range []*onnx.Value{cond, sum, sum} {
		body.AddOutput(v)
	}
	last, all := g.NewValue("last"), g.NewValue("all")
	g.AddNode("Loop", []*onnx.Value{trips, nil, oneValue}, []*onnx.Value{last, all},
		&onnx.Attribute{Name: "body", Type: onnx.AttrGraph, Graph: body})
	g.AddOutput(last)
	g.AddOutput(all)
	e, err := New(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(map[string]*Tensor{"x": floats(10)})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out["last"].F, []float64{23}) || !slices.Equal(out["all"].F, []float64{2, 3, 13, 23}) {
		t.Errorf("got %v, %v", out["last"].F, out["all"].F)
	}
}
