package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

func targetNamed(t *testing.T, name string) *target.Target {
	t.Helper()
	to, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// sitesOf returns the sites of a pattern.
func sitesOf(r *Report, pattern string) []SiteReport {
	return slices.DeleteFunc(slices.Clone(r.Sites), func(s SiteReport) bool { return s.Pattern != pattern })
}

// opsOf lists the distinct ops of a graph except constants, sorted.
func opsOf(g *onnx.Graph) []string { return slices.Compact(sites.OpNames(g.Nodes)) }

// TestMixturesForTargets: onnxruntime's MoE takes experts together with their router if it is a softmax router and
// nothing is between them.
func TestMixturesForTargets(t *testing.T) {
	for _, c := range []struct {
		name, spoil string
		router      func(m *rewritetest.MoE, logits value) (weights, ids value)
		status      string
		reason      string
	}{
		{"softmax", "", nil, Fused, ""},
		{"softmax of the chosen", "", func(m *rewritetest.MoE, logits value) (weights, ids value) {
			v, ids := m.TopK(logits, 2)
			return m.Op("Softmax", v, onnx.IntAttr("axis", -1)), ids
		}, Fused, ""},
		{"sharper logits", "", func(m *rewritetest.MoE, logits value) (weights, ids value) {
			v, ids := m.TopK(m.Op("Softmax", m.Op("Mul", logits, m.Scalar(m.Type, 2)), onnx.IntAttr("axis", -1)), 2)
			return m.Share(v), ids
		}, Fused, ""},
		{"not normalized", "", func(m *rewritetest.MoE, logits value) (weights, ids value) {
			return m.TopK(m.Op("Softmax", logits, onnx.IntAttr("axis", -1)), 2)
		}, Fused, ""},
		{"sigmoid", "", func(m *rewritetest.MoE, logits value) (weights, ids value) {
			v, ids := m.TopK(m.Op("Sigmoid", logits), 2)
			return m.Share(v), ids
		}, Open, "MoE scores by softmax, not by sigmoid"},
		{"a factor of each expert", "", func(m *rewritetest.MoE, logits value) (weights, ids value) {
			v, ids := m.TopK(m.Op("Softmax", logits, onnx.IntAttr("axis", -1)), 2)
			return m.Op("Mul", m.Share(v), m.Op("Gather", m.Weight("factors", m.Experts), ids)), ids
		}, Open, "are not the direct results of a router"},
		{"times the tokens", "times the tokens", nil, Refused, "differs from the matched nodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &rewritetest.MoE{Builder: rewritetest.New(t, 20, onnx.Float), Experts: 6, Chosen: 2, Hidden: 8,
				Inner: 4}
			m.X = m.In("x", "tokens", m.Hidden)
			logits := m.Op("MatMul", m.X, m.Weight("router", m.Hidden, m.Experts))
			m.GateUp, m.Down = m.Weight("gate_up", m.Experts, 2*m.Inner, m.Hidden),
				m.Weight("down", m.Experts, m.Hidden, m.Inner)
			if c.router == nil {
				c.router = func(m *rewritetest.MoE, logits value) (weights, ids value) {
					v, ids := m.TopK(m.Op("Softmax", logits, onnx.IntAttr("axis", -1)), 2)
					return m.Share(v), ids
				}
			}
			m.Weights, m.IDs = c.router(m, logits)
			m.Out(m.Gathered(c.spoil), "tokens", m.Hidden)
			r, err := Apply(m.Model, Request{Target: targetNamed(t, "ort")})
			if err != nil {
				t.Fatal(err)
			}
			if r.Products != nil {
				t.Errorf("reports products of a model without quantized weights: %+v", r.Products)
			}
			sites := sitesOf(r, "MoE")
			if len(sites) != 1 || sites[0].Status != c.status || !strings.Contains(sites[0].Reason, c.reason) {
				t.Fatalf("sites %+v, want one %s: %s", sites, c.status, c.reason)
			}
			ops := opsOf(m.Graph)
			if slices.Contains(ops, "TopK") == (c.status == Fused) ||
				slices.Contains(ops, "com.microsoft.MoE") != (c.status == Fused) {
				t.Errorf("the graph holds %v", ops)
			}
			switch routers := sitesOf(r, "TopKRouter"); {
			case c.status == Fused && len(routers) > 0:
				t.Errorf("the router was judged by itself: %+v", routers)
			case c.status != Fused && (len(routers) != 1 ||
				!strings.Contains(routers[0].Reason, "together with its experts")):
				t.Errorf("the router: %+v", routers)
			}
		})
	}
}

// TestTargetsOfWideTables: a target that takes half of each table does so if the graph makes the table of two equal
// halves.
func TestTargetsOfWideTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(b *rewritetest.Builder, angles value) value
		status string
	}{
		{"the same", func(_ *rewritetest.Builder, angles value) value { return angles }, Fused},
		{"others", func(b *rewritetest.Builder, angles value) value {
			return b.Op("Mul", angles, b.Scalar(onnx.Float, 2))
		}, Open},
	} {
		for _, name := range []string{"ort", "onnx"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				b := rewritetest.New(t, 24, onnx.Float)
				x := b.In("x", "batch", 2, "positions", 8)
				angles := b.Op("Mul", b.In("position", 1, "positions", 1), b.Weight("frequencies", 4))
				wide := b.Op("Concat", angles, c.second(b, angles), onnx.IntAttr("axis", -1))
				table := func(op string) value { return b.Op("Unsqueeze", b.Op(op, wide), b.Ints(1)) }
				b.Out(b.Rope(x, table("Cos"), table("Sin"), 8), "batch", 2, "positions", 8)
				r, err := Apply(b.Model, Request{Target: targetNamed(t, name)})
				if err != nil {
					t.Fatal(err)
				}
				if sites := sitesOf(r, "RotaryEmbedding"); len(sites) != 1 || sites[0].Status != c.status {
					t.Errorf("sites %+v, want one %s", sites, c.status)
				}
				if have := slices.Contains(sites.OpNames(b.Graph.Nodes), "Neg"); have != (c.status == Open) {
					t.Errorf("the graph holds %v", opsOf(b.Graph))
				}
				for _, n := range b.Graph.Nodes {
					if n.Domain == fused.Domain {
						t.Errorf("mojo.%s was written", n.OpType)
					}
				}
			})
		}
	}
}

// TestOldOpsetForTarget: a model of an older opset is raised to the target's before the search.
func TestOldOpsetForTarget(t *testing.T) {
	b := rewritetest.New(t, 17, onnx.Float)
	x := b.In("x", "tokens", 8)
	b.Out(b.Norm(x, b.Weight("scale", 8), 1e-6), "tokens", 8)
	same(t, b.Model, func() {
		r, err := Apply(b.Model, Request{Target: targetNamed(t, "onnx")})
		if err != nil {
			t.Fatal(err)
		}
		if sites := sitesOf(r, "RMSNorm"); len(sites) != 1 || sites[0].Status != Fused || b.Model.Opset("") != 24 {
			t.Errorf("opset %d, sites %+v", b.Model.Opset(""), sites)
		}
	})
}
