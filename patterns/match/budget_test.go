package match

import (
	"strconv"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestFound has places of one kind that take more than their own steps. Where something is found they draw nothing, so
// all get as many steps as the first.
func TestFound(t *testing.T) {
	b := onnxtest.New(20)
	g := New(b.Graph, infer.Analyze(b.Model), NewIndex(NewLanguage(nil)))
	budget := g.Budget("test", Limits{Each: 10, Reserve: 1000, Shares: 2})
	for i := range 50 {
		budget.Begin(b.Op("Relu", b.Input("x"+strconv.Itoa(i), onnx.Float, "n")).Producer)
		if !budget.Spend(400) {
			t.Fatalf("place %d has no 400 steps", i)
		}
		budget.Found()
		budget.End()
	}
}

// TestBudget has places of two kinds that take all the steps they can get. The second kind still has a share of the
// remaining reserve.
func TestBudget(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n")
	var first, second []*onnx.Node
	for range 10 {
		first = append(first, b.Op("Relu", b.Op("Exp", x)).Producer)
		second = append(second, b.Op("Relu", b.Op("Neg", x)).Producer)
	}
	g := New(b.Graph, infer.Analyze(b.Model), NewIndex(NewLanguage(nil)))
	budget := g.Budget("test", Limits{Each: 10, Reserve: 1000, Shares: 4})
	spend := func(n *onnx.Node) (steps int) {
		budget.Begin(n)
		for steps = 1; budget.Spend(1); steps++ {
		}
		return steps
	}
	for i, want := range []int{260, 10, 10} {
		if got := spend(first[i]); got != want {
			t.Errorf("place %d of the first kind gets %d steps, want %d", i, got, want)
		}
	}
	for i, want := range []int{197, 10 + 250 - 187, 10} {
		if got := spend(second[i]); i == 0 && got != want || i > 0 && got > want {
			t.Errorf("place %d of the second kind gets %d steps, want %d", i, got, want)
		}
	}
	budget.Begin(first[3])
	budget.Found()
	if got := spend(first[4]); got != 10*afterFound {
		t.Errorf("where something was found at another place of the kind, a place gets %d steps", got)
	}
	gaveUp := g.GaveUp()
	if len(gaveUp) != 1 || gaveUp[0].Search != "test" || len(gaveUp[0].Places) != 7 || gaveUp[0].Places[0] != first[0] {
		t.Errorf("given up: %+v", gaveUp)
	}
	budget.Found()
	for range patience - 1 { // the current place is one more
		if got := spend(first[4]); got != 10*afterFound {
			t.Errorf("it gets %d steps where few were given up in a row", got)
		}
	}
	if got := spend(first[4]); got != 10 {
		t.Errorf("it gets %d steps where many were given up in a row", got)
	}
	if again := g.Budget("test", Limits{}); again != budget {
		t.Error("another budget of the same search")
	}
	other := New(b.Graph, g.Facts, g.index)
	if again := other.Budget("test", Limits{}); again != budget || len(other.GaveUp()) != 0 {
		t.Error("another graph of the model has a budget of its own, or what was given up in the first one")
	}
}
