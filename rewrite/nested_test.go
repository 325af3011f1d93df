package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestSitesWithinReplacedGraphs: a block in the body of a Loop is a site only if the Loop is not replaced as a whole.
func TestSitesWithinReplacedGraphs(t *testing.T) {
	for _, right := range []bool{true, false} {
		m := newMoE(t, onnx.Float, 5, 2, 8, 6)
		m.clamped = true
		y := m.looped()
		m.Out(y, "tokens", m.hidden)
		m.clamped = right
		whole := m.match(y, "silu")
		whole.Domain, whole.Root = "mojo", y.Producer
		oneNode(whole, 20)
		whole.Nodes = []*onnx.Node{whole.Root}
		find := patterns.Builtin().Select(func(p *patterns.Pattern) bool { return p.Name == "ClampedSwiGLU" }).Find
		r := apply(t, m.Model, Request{find: func(g *onnx.Graph, facts *infer.Facts) ([]*patterns.Match,
			[]*patterns.Miss) {
			found, misses := find(g, facts)
			if g == m.Graph {
				found = append(found, whole)
			}
			return found, misses
		}})
		var units int
		for _, s := range r.Sites {
			if s.Pattern == "ClampedSwiGLU" {
				units++
			}
		}
		n := rewritetest.CountOps(m.Model)
		switch {
		case right && (units != 0 || n["MoE"] != 1 || n["Loop"] != 0):
			t.Errorf("%d units beside the whole, %v", units, n)
		case !right && (n["MoE"] != 0 || n["Loop"] != 1 || n["GLU"] != 1 || units != 1):
			t.Errorf("%d units without the whole, %v, %+v", units, n, r.Sites)
		}
	}
}

// TestSecondLook: gated units inside refused experts are fused one by one.
func TestSecondLook(t *testing.T) {
	for _, c := range []struct {
		request        Request
		experts, units int
	}{{Request{}, 1, 0}, {Request{KeepPattern: func(name string) bool { return name != fused.MoEName }}, 0, 1}} {
		m := newMoE(t, onnx.Float, 5, 2, 8, 6)
		m.clamped = true
		w, ids := m.TopK(m.Op("Softmax", m.Op("MatMul", m.x, m.Weight("gate", m.hidden, m.experts)),
			onnx.IntAttr("axis", -1)), int64(m.chosen))
		m.weights, m.ids = w, ids
		m.Out(m.gathered(""), "tokens", m.hidden)
		r := apply(t, m.Model, c.request)
		if n := rewritetest.CountOps(m.Model); n["MoE"] != c.experts || n["GLU"] != c.units {
			t.Errorf("%d and %d wanted: %v, %+v", c.experts, c.units, n, r.Sites)
		}
	}
}

// TestReplacedLoopsThatOthersRead: a Loop with other readers stays, with the values that it captures.
func TestReplacedLoopsThatOthersRead(t *testing.T) {
	m := newMoE(t, onnx.Float, 5, 2, 8, 6)
	y := m.looped()
	loop := y.Producer.Input(0)
	m.Out(loop, "tokens", m.hidden)
	s := m.judge(y, "silu")
	if s.Status != Fused {
		t.Fatalf("%s: %s", s.Status, s.Reason)
	}
	if n := rewritetest.CountOps(m.Model); n["MoE"] != 1 || n["Loop"] != 1 {
		t.Errorf("%v", n)
	}
	checkRuns(t, m.Model)
}

// TestUncheckedDependency: a match depends on the values that its subgraphs read besides the op's inputs.
func TestUncheckedDependency(t *testing.T) {
	m := newMoE(t, onnx.Float, 5, 2, 8, 6)
	other := m.In("other", "tokens", m.chosen)
	weights := m.weights
	m.weights = other
	y := m.looped()
	m.weights = weights
	y = m.Op("Add", y, m.Op("Mul", m.Op("ReduceSum", m.weights, m.Ints(1), onnx.IntAttr("keepdims", 1)),
		m.Scalar(onnx.Float, 0)))
	if s := m.judge(y, "silu"); s.Status != Refused || !strings.Contains(s.Reason, `depend on "other"`) {
		t.Errorf("%s: %s", s.Status, s.Reason)
	}
}
