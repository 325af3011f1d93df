package rewrite

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// mixture is a model of one mixture of 4 experts with separate initializers for gate, up and down. All experts see
// every token, and their results are summed with the routing's weights, 0 for experts that were not chosen.
type mixture struct {
	m            *onnx.Model
	x, w, ids    value
	gate, up, do []value
	y            value
	nodes        []*onnx.Node
}

const mixtureExperts, mixtureHidden, mixtureInner = 4, 12, 20

func newMixture(t *testing.T, outIn bool) *mixture {
	b := rewritetest.New(t, 18, onnx.Float)
	s := &mixture{m: b.Model, x: b.In("x", "tokens", mixtureHidden)}
	logits := b.In("logits", "tokens", mixtureExperts)
	s.w, s.ids = b.Graph.NewValue("w"), b.Graph.NewValue("ids")
	b.Graph.AddNode("TopK", []value{logits, b.Ints(2)}, []value{s.w, s.ids})
	first := len(b.Graph.Nodes)
	hot := b.Op("OneHot", s.ids, b.Ints(mixtureExperts), b.Floats([]int64{2}, 0, 1))
	dense := b.Op("ReduceSum", b.Op("Mul", hot, b.Op("Unsqueeze", s.w, b.Ints(-1))), b.Ints(1),
		onnx.IntAttr("keepdims", 0))
	linear := func(name string, x value, in, out int, list *[]value) value {
		if outIn {
			in, out = out, in
		}
		w := b.Weight(name, in, out)
		*list = append(*list, w)
		if outIn {
			return b.Op("Gemm", x, w, onnx.IntAttr("transB", 1))
		}
		return b.Op("MatMul", x, w)
	}
	for e := range mixtureExperts {
		gate := linear("gate", s.x, mixtureHidden, mixtureInner, &s.gate)
		up := linear("up", s.x, mixtureHidden, mixtureInner, &s.up)
		act := b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), up)
		y := linear("down", act, mixtureInner, mixtureHidden, &s.do)
		y = b.Op("Mul", y, b.Op("Slice", dense, b.Ints(int64(e)), b.Ints(int64(e)+1), b.Ints(1)))
		if s.y != nil {
			y = b.Op("Add", s.y, y)
		}
		s.y = y
	}
	s.nodes = append(s.nodes, b.Graph.Nodes[first:]...)
	b.Out(s.y, "tokens", mixtureHidden)
	return s
}

// match rewrites the mixture to mojo.MoE; expert returns the expert whose weights replace those of e.
func (s *mixture) match(t *testing.T, outIn bool, expert func(e int) int) *patterns.Match {
	h := newHand(t, s.y)
	x, w, ids := h.in(s.x), h.in(s.w), h.in(s.ids)
	axis, layout := int64(1), "in_out"
	if outIn {
		axis, layout = 0, "out_in"
	}
	var first, second []value
	for e := range mixtureExperts {
		e = expert(e)
		both := h.Ops(1, "Concat", h.in(s.gate[e]), h.in(s.up[e]), onnx.IntAttr("axis", axis))
		first = append(first, h.Ops(1, "Unsqueeze", both, h.Ints(0))...)
		second = append(second, h.Ops(1, "Unsqueeze", h.in(s.do[e]), h.Ints(0))...)
	}
	gateUp := h.Ops(1, "Concat", first, onnx.IntAttr("axis", 0))
	down := h.Ops(1, "Concat", second, onnx.IntAttr("axis", 0))
	y := h.Ops(1, "MoE", x, w, ids, gateUp, down, fused.MoE{GLU: fused.GLU{Activation: "silu", Alpha: 1},
		Packing: "halves", GateUpLayout: layout, DownLayout: layout}.Attributes())
	y[0].Producer.Domain = "mojo"
	h.m.Roles = map[value]fused.Role{s.x: fused.RoleTokens, s.w: fused.RoleWeights, s.ids: fused.RoleIDs}
	for e := range mixtureExperts {
		for _, matrix := range []value{s.gate[e], s.up[e], s.do[e]} {
			h.m.Roles[matrix] = fused.RoleMatrix
		}
	}
	return h.done(s.nodes, y[0])
}

// TestExpertsArePacked stacks the weights of experts in both layouts, and reads the report.
func TestExpertsArePacked(t *testing.T) {
	for _, outIn := range []bool{false, true} {
		s := newMixture(t, outIn)
		want := rewritetest.Evaluate(t, s.m)[s.y.Name]
		r, err := Apply(s.m, Request{Kernels: "cpu_fused_moe", AssumeAvailable: true, find: foundByHand(
			func(*onnx.Graph) []*patterns.Match {
				return []*patterns.Match{s.match(t, outIn, func(e int) int { return e })}
			})})
		if err != nil || r.Fused() != 1 {
			t.Fatalf("%v %+v", err, r.Sites)
		}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if line := "expert weights     12 expected, 12 packed, 0 missing, 0 unexpected\n"; !strings.Contains(
			text.String(), line) {
			t.Errorf("the report has no %q:\n%s", line, &text)
		}
		bytes := int64(mixtureExperts * 3 * mixtureHidden * mixtureInner * 4)
		if w := r.Sites[0].Weights; w == nil || w.Bytes != bytes || w.Stored != 0 || r.Weights.Bytes != bytes {
			t.Errorf("weights %+v, in sum %+v", w, r.Weights)
		}
		var have []string
		for _, v := range s.m.Graph.Initializers() {
			if v.Const.DataType == onnx.Float {
				have = append(have, v.Name)
			}
		}
		if len(have) != 2 || len(s.m.Graph.Nodes) != 2 {
			t.Errorf("initializers %q, %d nodes", have, len(s.m.Graph.Nodes))
		}
		path := filepath.Join(t.TempDir(), "out.onnx")
		if err := onnx.Write(path, s.m); err != nil {
			t.Fatal(err)
		}
		again, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		got := rewritetest.Evaluate(t, again)[s.y.Name]
		for i := range want.F {
			if math.Abs(got.F[i]-want.F[i]) > 1e-5*(1+math.Abs(want.F[i])) {
				t.Fatalf("element %d is %v, was %v", i, got.F[i], want.F[i])
			}
		}
	}
}

// TestMissingExperts packs one expert twice, unchecked: the report must tell.
func TestMissingExperts(t *testing.T) {
	s := newMixture(t, true)
	r, err := Apply(s.m, Request{Kernels: "cpu_fused_moe", AssumeAvailable: true, Verify: VerifyOff,
		find: foundByHand(func(*onnx.Graph) []*patterns.Match {
			return []*patterns.Match{s.match(t, true, func(e int) int { return max(e, 1) })}
		})})
	if err != nil || r.Fused() != 1 {
		t.Fatalf("%v %+v", err, r.Sites)
	}
	if w := r.Sites[0].Weights; w.Expected != 12 || w.Packed != 9 || w.Missing != 3 || w.Unexpected != 3 ||
		strings.Join(w.Names, " ") != "gate up down" {
		t.Errorf("weights %+v", w)
	}
}
