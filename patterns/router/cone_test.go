package router

import (
	"reflect"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestChoicesShareCones follows the logits of two choices once.
func TestChoicesShareCones(t *testing.T) {
	b := onnxtest.New(20)
	logits := b.Op("MatMul", b.Input("x", onnx.Float, "tokens", 4), b.Floats([]int64{4, 8}, make([]float32, 32)...))
	for k := range 2 {
		out := b.Ops(2, "TopK", logits, []int64{int64(k + 1)})
		for _, v := range out {
			b.Output(v)
		}
		b.Output(b.Op("Gather", b.Floats([]int64{8, 2, 2}, make([]float32, 32)...), out[1]))
	}
	g := match.New(b.Graph, infer.Analyze(b.Model), match.NewIndex(match.NewLanguage(nil)))
	list := All(g)
	if len(list) != 2 {
		t.Fatalf("%d choices", len(list))
	}
	if first, second := list[0].cone, list[1].cone; len(first) == 0 ||
		reflect.ValueOf(first).Pointer() != reflect.ValueOf(second).Pointer() {
		t.Errorf("the cones are %v and %v", first, second)
	}
}

// TestManyExpertsTakeFewSteps finds the weights of routers with more and more experts: the steps must grow like the
// graph.
func TestManyExpertsTakeFewSteps(t *testing.T) {
	shape, ok := hostile.Find("fan-experts")
	if !ok {
		t.Fatal("no such shape")
	}
	steps := func(nodes int) int {
		m := shape.Model(nodes)
		facts := infer.Analyze(m)
		list := All(match.New(m.Graph, facts, match.NewIndex(match.NewLanguage(nil))))
		if len(list) != 1 || list[0].Weights == nil {
			t.Fatalf("%d nodes: routers %+v", nodes, list)
		}
		return match.StepsTaken(facts)
	}
	if few, many := steps(400), steps(4000); many > 15*few {
		t.Errorf("ten times the nodes take %d steps in the place of %d", many, few)
	}
}
