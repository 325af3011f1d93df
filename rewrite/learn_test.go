package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// isMatched reports whether built-in patterns match a spelling without a fit.
func isMatched(name string) bool {
	return name == "sigmoid by an exponential" || name == "roll" || strings.HasPrefix(name, "opposite angle")
}

// learnFrom returns the patterns learned from a model, and a set of these and the built-in patterns without fits.
func learnFrom(t *testing.T, m *onnx.Model) (*LearnReport, *patterns.Set) {
	t.Helper()
	r := planned(t, m, Request{Learn: true}).Report
	set, err := patterns.Builtin().With("learnt.pat", r.Learnt.Text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.Learnt.Text)
	}
	return r.Learnt, set.Select(func(p *patterns.Pattern) bool { return !strings.HasPrefix(p.Name, "fit:") })
}

// Each fitted spelling is learned, and the learned pattern finds it without a fit.
func TestLearnt(t *testing.T) {
	for _, test := range slices.Concat(fittedNorms, fittedGates, fittedRotations) {
		if test.op == "" || isMatched(test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			for _, dims := range [][]any{{"batch", "sequence", channels}, {1, 5, channels}} {
				model := func() *onnx.Model {
					b := onnxtest.New(20)
					b.Output(test.make(b, b.Input("x", onnx.Float, dims...)))
					return b.Model
				}
				learnt, set := learnFrom(t, model())
				if learnt.Fitted == 0 || learnt.Learnt != learnt.Fitted {
					t.Errorf("%d of %d learnt, left %+v", learnt.Learnt, learnt.Fitted, learnt.Left)
				}
				m := model()
				apply(t, m, Request{Patterns: set})
				if n := rewritetest.CountOps(m)[test.op]; n != 1 {
					t.Errorf("%d %s with\n%s", n, test.op, learnt.Text)
				}
			}
		})
	}
}

// spelledNorm is a norm of rows of n channels with an Einsum for the mean; outside adds epsilon in a wrong place.
func spelledNorm(n int, epsilon float64, turned, outside bool) *onnx.Model {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "batch", "sequence", n)
	letters := equation("bsc,bsc->bs")
	if turned {
		letters = equation("ijk,ijk->ij")
	}
	mean := b.Op("Div", b.Op("Einsum", x, x, letters), float64(n))
	root := b.Op("Sqrt", b.Op("Add", mean, epsilon))
	if outside {
		root = b.Op("Add", b.Op("Sqrt", mean), epsilon)
	}
	inverse := b.Op("Unsqueeze", b.Op("Reciprocal", root), []int64{-1})
	if turned { // swapped operands, a root and its inverse by other ops, another number of the same axis
		inverse = b.Op("Unsqueeze", b.Op("Div", 1.0, b.Op("Pow", b.Op("Add", epsilon, mean), 0.5)), []int64{2})
		b.Output(b.Op("Mul", vectorOf(b, n), b.Op("Mul", inverse, x)))
		return b.Model
	}
	b.Output(b.Op("Mul", b.Op("Mul", x, inverse), vectorOf(b, n)))
	return b.Model
}

// Learned patterns find the spelling with another size and epsilon, swapped operands and another root, but no other
// function.
func TestLearntOthers(t *testing.T) {
	learnt, set := learnFrom(t, spelledNorm(channels, 1e-5, false, false))
	if want := []string{"size (12)", "epsilon (1e-05)"}; len(learnt.Patterns) != 1 ||
		!slices.Equal(learnt.Patterns[0].Numbers, want) {
		t.Fatalf("learnt %+v", learnt.Patterns)
	}
	for _, test := range []struct {
		name  string
		model *onnx.Model
		fused int
	}{
		{"size and epsilon", spelledNorm(20, 3e-6, false, false), 1},
		{"commuted", spelledNorm(7, 1e-3, true, false), 1},
		{"epsilon outside of the root", spelledNorm(12, 1e-5, false, true), 0},
	} {
		r := apply(t, test.model, Request{Patterns: set})
		if n := rewritetest.CountOps(test.model)["RMSNorm"]; n != test.fused {
			t.Errorf("%s: %d fused of %+v with\n%s", test.name, n, r.Sites, learnt.Text)
		}
		for _, s := range r.Sites {
			if s.Status == Refused {
				t.Errorf("%s: refused: %s", test.name, s.Reason)
			}
		}
	}
}

// A clamped unit has four numbers, and a learned pattern keeps the relation between its limits.
func TestLearntLimits(t *testing.T) {
	unit := func(limit, least, alpha float64) *onnx.Model {
		b := onnxtest.New(20)
		gate, up := b.Input("gate", onnx.Float, "n", 16), b.Input("up", onnx.Float, "n", 16)
		g := b.Op("Clip", gate, nil, limit)
		u := b.Op("Clip", up, least, limit)
		sigmoid := b.Op("Mul", b.Op("Add", b.Op("Tanh", b.Op("Mul", g, alpha/2)), 1.0), 0.5)
		b.Output(b.Op("Mul", b.Op("Mul", g, sigmoid), b.Op("Add", u, 1.0)))
		return b.Model
	}
	learnt, set := learnFrom(t, unit(7, -7, 1.702))
	if learnt.Learnt != 1 {
		t.Fatalf("learnt %+v", learnt)
	}
	other := unit(5, -5, 1.25)
	r := apply(t, other, Request{Patterns: set})
	if r.Fused() != 1 {
		t.Fatalf("%+v with\n%s", r.Sites, learnt.Text)
	}
	for _, a := range r.Sites[0].Match.Attributes {
		if want := map[string]float32{"limit": 5, "alpha": 1.25, "up_offset": 1}[a.Name]; a.Type == onnx.AttrFloat &&
			a.Float != want {
			t.Errorf("%s is %v, want %v", a.Name, a.Float, want)
		}
	}
	if r := apply(t, unit(5, -4, 1.25), Request{Patterns: set}); len(r.Sites) > 0 && r.Sites[0].Status != Missed {
		t.Errorf("other limits: %+v", r.Sites)
	}
}

// A block that the notation cannot express is named, and still fused.
func TestUnlearnt(t *testing.T) {
	b := onnxtest.New(20)
	turn := rotated(func(b builder, x, cos, sin value) value {
		swapped := b.Op("MatMul", x, signs(b, func(i int) (int, float32) { return (i + channels/2) % channels, 1 }))
		signed := b.Op("Mul", swapped, b.Floats([]int64{channels}, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1))
		return b.Op("Add", b.Op("Mul", x, twice(b, cos)), b.Op("Mul", signed, twice(b, sin)))
	})
	b.Output(turn(b, b.Input("x", onnx.Float, "batch", "sequence", channels)))
	r := planned(t, b.Model, Request{Learn: true}).Report
	if l := r.Learnt; r.Fused() != 1 || l.Fitted != 1 || l.Learnt != 0 || len(l.Patterns) != 0 || len(l.Left) != 1 ||
		!strings.Contains(l.Left[0].Reason, "which the notation cannot express") {
		t.Errorf("%+v", l)
	}
}

// If patterns match all blocks, nothing is learned, and the file has no patterns.
func TestLearntNothing(t *testing.T) {
	r := planned(t, rewritetest.Block(t, 20, onnx.Float), Request{Learn: true}).Report
	if l := r.Learnt; l.Fitted != 0 || len(l.Patterns) != 0 || len(l.Left) != 0 {
		t.Errorf("%+v", l)
	}
	if set, err := patterns.Builtin().With("learnt.pat", r.Learnt.Text); err != nil ||
		len(set.Patterns) != len(patterns.Builtin().Patterns) {
		t.Errorf("%v of %q", err, r.Learnt.Text)
	}
}

// An attribute that the node does not know can only be a name.
func TestLearntAttributes(t *testing.T) {
	for name, text := range map[string]string{"a=1>(x)\n} => Abs(x) #": "", "a": "b\">(x)\n} => Abs(x) #"} {
		m := spelledNorm(channels, 1e-5, false, false)
		for _, n := range m.Graph.Nodes {
			n.Attributes = append(n.Attributes, onnx.StringAttr(name, text))
		}
		if l := planned(t, m, Request{Learn: true}).Report.Learnt; l.Learnt > 0 || l.Fitted != 1 {
			t.Errorf("%+v", l)
		}
	}
}

// Names of nodes and files cannot escape from their comments, and learned patterns get unused names.
func TestLearntNames(t *testing.T) {
	m := spelledNorm(channels, 1e-5, false, false)
	nodes := m.Graph.Nodes
	nodes[len(nodes)-1].Name = "end\npattern Wrong(x) -> y {\n  y = Neg(x)\n} => Abs(x)"
	m.Path = "a\nb.onnx"
	learnt, set := learnFrom(t, m)
	if slices.ContainsFunc(set.Patterns, func(p *patterns.Pattern) bool { return p.Name == "Wrong" }) {
		t.Errorf("%q", learnt.Text)
	}
	mine, err := patterns.Builtin().With("mine.pat", "pattern "+learnt.Patterns[0].Name+
		"(x) -> y {\n  y = Abs(Neg(x))\n} => Abs(x)")
	if err != nil {
		t.Fatal(err)
	}
	again := planned(t, spelledNorm(channels, 1e-5, false, false), Request{Learn: true, Patterns: mine}).Report.Learnt
	if want := learnt.Patterns[0].Name + "_2"; len(again.Patterns) != 1 || again.Patterns[0].Name != want {
		t.Errorf("%+v, want %s", again.Patterns, want)
	}
}
