package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestSitesWithinReplacedGraphs: a block in the body of a Loop is a site only if the Loop is not replaced as a whole.
func TestSitesWithinReplacedGraphs(t *testing.T) {
	for _, right := range []bool{true, false} {
		m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
		m.Clamped = true
		y := m.Looped()
		m.Out(y, "tokens", m.Hidden)
		m.Clamped = right
		whole := m.Match(y, "silu")
		whole.Domain, whole.Root = "mojo", y.Producer
		rewritetest.OneNode(whole, 20)
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
		m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
		m.Clamped = true
		w, ids := m.TopK(m.Op("Softmax", m.Op("MatMul", m.X, m.Weight("gate", m.Hidden, m.Experts)),
			onnx.IntAttr("axis", -1)), int64(m.Chosen))
		m.Weights, m.IDs = w, ids
		m.Out(m.Gathered(""), "tokens", m.Hidden)
		r := apply(t, m.Model, c.request)
		if n := rewritetest.CountOps(m.Model); n["MoE"] != c.experts || n["GLU"] != c.units {
			t.Errorf("%d and %d wanted: %v, %+v", c.experts, c.units, n, r.Sites)
		}
	}
}

// TestReplacedLoopsThatOthersRead: a Loop with other readers stays, with the values that it captures.
func TestReplacedLoopsThatOthersRead(t *testing.T) {
	m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	y := m.Looped()
	loop := y.Producer.Input(0)
	m.Out(loop, "tokens", m.Hidden)
	s := judgeExperts(m, y, "silu")
	if s.Status != Fused {
		t.Fatalf("%s: %s", s.Status, s.Reason)
	}
	if n := rewritetest.CountOps(m.Model); n["MoE"] != 1 || n["Loop"] != 1 {
		t.Errorf("%v", n)
	}
	checkRuns(t, m.Model)
}

// TestTracedExpertsRun: the op of a site that is repaired runs on experts that the nodes fail for.
func TestTracedExpertsRun(t *testing.T) {
	m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := judgeExperts(m, m.Unrolled(3), "silu"); s.Status != Fused || s.Check.Repairs == "" {
		t.Fatalf("%s: %s", s.Status, s.Reason)
	}
	checkRuns(t, m.Model) // on four experts
}

// TestUncheckedDependency: a match depends on the values that its subgraphs read besides the op's inputs.
func TestUncheckedDependency(t *testing.T) {
	m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	other := m.In("other", "tokens", m.Chosen)
	weights := m.Weights
	m.Weights = other
	y := m.Looped()
	m.Weights = weights
	y = m.Op("Add", y, m.Op("Mul", m.Op("ReduceSum", m.Weights, m.Ints(1), onnx.IntAttr("keepdims", 1)),
		m.Scalar(onnx.Float, 0)))
	if s := judgeExperts(m, y, "silu"); s.Status != Refused || !strings.Contains(s.Reason, `depend on "other"`) {
		t.Errorf("%s: %s", s.Status, s.Reason)
	}
}

// judgeExperts judges an op for the experts whose sum is y.
func judgeExperts(m *rewritetest.MoE, y value, activation string) SiteReport {
	m.T.Helper()
	m.Out(y, "tokens", m.Hidden)
	return judgeOne(m.T, m.Model, m.Match(y, activation))
}

// checkRuns demands that the patched model can be evaluated.
func checkRuns(t *testing.T, m *onnx.Model) {
	t.Helper()
	ids := reference.NewInts(onnx.Int64, []int{3, 2}, []int64{4, 0, 0, 1, 2, 4})
	in := map[string]*reference.Tensor{"ids": ids}
	for _, v := range m.Graph.Inputs {
		if v.Name != "ids" {
			typ, _ := v.Type()
			dims := []int64{3, typ.Dims[1].Value}
			var err error
			if in[v.Name], err = prove.MakeInput(prove.Normal, 1, typ.DataType, dims); err != nil {
				t.Fatal(err)
			}
		}
	}
	rewritetest.Run(t, m, in)
}
