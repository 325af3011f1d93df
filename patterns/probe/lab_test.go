package probe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestLab plans exp(x)*y once, runs it twice, and omits or refuses values that a run must not compute.
func TestLab(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, 2), b.Input("y", onnx.Float, 2)
	half := b.Op("Mul", b.Op("Exp", x), y)
	z := b.Op("Where", b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Bool))), half, y)
	b.Output(z)
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	budget := g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1})
	lab := NewLab(g, 10, budget)
	floats := func(list ...float64) *reference.Tensor { return reference.NewFloats(onnx.Float, []int{2}, list) }
	known := func(v *onnx.Value) (*reference.Tensor, error) {
		if v == y {
			return floats(2, 3), nil
		}
		return nil, nil
	}
	p, err := lab.Plan(Values{x: nil}, known, half, y)
	if err != nil || len(p.Nodes) != 2 || p.Known[y] == nil {
		t.Fatalf("the plan has %d nodes and knows %v: %v", len(p.Nodes), p.Known, err)
	}
	for _, x0 := range []float64{0, 1} {
		out, err := p.Run(Values{x: floats(x0, 0)})
		if err != nil || out[0].F[1] != 3 || (out[0].F[0] == 2) != (x0 == 0) ||
			!slices.Equal(out[1].F, []float64{2, 3}) {
			t.Errorf("x = %v: %v, %v", x0, out, err)
		}
	}
	if shape, ok := lab.Shape(z); !ok || !slices.Equal(shape, []int{2}) {
		t.Errorf("the shape is %v, %v", shape, ok)
	}

	nothing := func(*onnx.Value) (*reference.Tensor, error) { return nil, nil }
	two := b.Graph.AddInitializer(onnx.NewFloat32s("two", []int64{2}, []float32{2, 1 + 0x1p-20}))
	clipped := b.Op("Clip", two, nil, b.Floats(nil, 2.5))
	half16 := b.Op("Cast", clipped, onnx.IntAttr("to", int64(onnx.Float16)))
	rounded := b.Op("Cast", half16, onnx.IntAttr("to", int64(onnx.Float)))
	inner := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("inner")}
	copied, negated := inner.Op("Neg", b.Op("Identity", two)), inner.Op("Neg", half)
	b.Output(b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", inner.Graph)))
	facts := infer.Analyze(b.Model)
	exact := NewLab(match.New(b.Graph, facts, nil), 10, budget)
	for l, want := range map[*Lab][]float64{exact: {2, 1 + 0x1p-20}, exact.Rounded(): {2, 1}} {
		out, err := l.Run(nil, nothing, rounded, two)
		if err != nil || !slices.Equal(out[0].F, want) || out[1].F[1] != 1+0x1p-20 {
			t.Errorf("%v, %v, want %v", out, err, want)
		}
	}
	branch := NewLab(match.New(inner.Graph, facts, nil), 10, budget)
	if out, err := branch.Run(nil, nothing, copied); err != nil || out[0].F[0] != -2 {
		t.Errorf("of an outer constant: %v, %v", out, err)
	}
	if _, err := branch.Run(Values{x: floats(1, 1), y: floats(1, 1)}, nothing, negated); err == nil {
		t.Error("an outer value was computed")
	}
	var missing *MissingError
	if _, err := lab.Plan(Values{x: nil}, nothing, half); !errors.As(err, &missing) || missing.Value != y {
		t.Errorf("without y: %v", err)
	}
	unread := func(*onnx.Value) (*reference.Tensor, error) { return nil, ErrUnread }
	if p, err := lab.Plan(nil, unread, half); err != nil || len(p.Nodes) != 0 {
		t.Errorf("unread: %v, %v", p, err)
	} else if _, err := p.Run(nil); err == nil {
		t.Error("a value that was left out was computed")
	}
	refused := errors.New("refused")
	refuse := func(*onnx.Value) (*reference.Tensor, error) { return nil, refused }
	if _, err := lab.Plan(nil, refuse, half); err != refused {
		t.Errorf("refused: %v", err)
	}
	if _, err := NewLab(g, 1, budget).Plan(Values{x: nil, y: nil}, nothing, z); err == nil ||
		!strings.Contains(err.Error(), "more than 1 nodes") {
		t.Errorf("four nodes of one: %v", err)
	}
	budget.Begin(b.Graph.Nodes[0])
	for budget.Spend(1 << 10) {
	}
	if _, err := p.Run(Values{x: floats(0, 0)}); err == nil {
		t.Error("a run without steps")
	}
}

// TestLabsShareFunctions makes a second lab of a model with many functions, which must not take memory for each of
// them.
func TestLabsShareFunctions(t *testing.T) {
	b := onnxtest.New(20)
	b.Output(b.Op("Exp", b.Input("x", onnx.Float, 2)))
	const functions = 10_000
	for i := range functions {
		b.Model.Functions = append(b.Model.Functions, onnx.NewFunction("local", fmt.Sprint("f", i), "", 20))
	}
	g := match.New(b.Graph, infer.Analyze(b.Model), match.NewIndex(match.NewLanguage(nil)))
	budget := g.Budget("test", match.Limits{Each: 1, Shares: 1})
	NewLab(g, 1, budget)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	NewLab(g, 1, budget).Rounded()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 10*functions {
		t.Errorf("a second lab takes %d bytes", n)
	}
}
