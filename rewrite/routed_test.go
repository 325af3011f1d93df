package rewrite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// moeBuilder holds the values of a mixture of E experts, k of which each token uses.
type moeBuilder struct {
	*rewritetest.Builder
	experts, chosen, hidden, inner int
	x, weights, ids                value // [tokens, ...]
	gateUp, down                   value // out_in
	clamped                        bool
}

func newMoE(t *testing.T, typ onnx.DataType, experts, chosen, hidden, inner int) *moeBuilder {
	b := rewritetest.New(t, 20, typ)
	m := &moeBuilder{Builder: b, experts: experts, chosen: chosen, hidden: hidden, inner: inner}
	m.x = b.In("x", "tokens", hidden)
	m.weights = b.In("weights", "tokens", chosen)
	m.ids = b.Input("ids", onnx.Int64, "tokens", chosen)
	m.gateUp = b.Weight("gate_up", experts, 2*inner, hidden)
	m.down = b.Weight("down", experts, hidden, inner)
	return m
}

// unit writes silu(gate)*up, or the clamped form of gpt-oss.
func (m *moeBuilder) unit(b *rewritetest.Builder, gate, up value) value {
	if !m.clamped {
		return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), up)
	}
	number := func(x float64) value { return m.Scalar(m.Type, x) }
	gate, up = b.Op("Min", gate, number(7)), b.Op("Clip", up, number(-7), number(7))
	return b.Op("Mul", b.Op("Add", up, number(1)), b.Op("Mul", gate, b.Op("Sigmoid", b.Op("Mul", gate, number(1.702)))))
}

func (m *moeBuilder) attributes(activation string) []*onnx.Attribute {
	glu := fused.GLU{Activation: activation, Alpha: 1}
	if m.clamped {
		glu.Alpha, glu.Limit, glu.UpOffset = 1.702, 7, 1
	}
	return fused.MoE{GLU: glu, Packing: "halves", GateUpLayout: "out_in", DownLayout: "out_in"}.Attributes()
}

// gathered writes the experts in the exported form that gathers weights for each token.
func (m *moeBuilder) gathered(spoil string) value {
	k, h := int64(m.chosen), int64(m.hidden)
	flat := m.Op("Reshape", m.ids, m.Ints(-1))
	rows := m.Op("Reshape", m.Op("Expand", m.Op("Unsqueeze", m.x, m.Ints(1)), m.Ints(1, k, 1)), m.Ints(-1, h, 1))
	first := flat
	if spoil == "first expert" {
		first = m.Op("Mul", flat, m.Ints(0))
	}
	y := m.Op("Squeeze", m.Op("MatMul", m.Op("Gather", m.gateUp, first, onnx.IntAttr("axis", 0)), rows), m.Ints(-1))
	gate := m.Op("Slice", y, m.Ints(0), m.Ints(int64(m.inner)), m.Ints(1))
	up := m.Op("Slice", y, m.Ints(int64(m.inner)), m.Ints(1<<40), m.Ints(1))
	if spoil == "swapped" {
		gate, up = up, gate
	}
	act := m.unit(m.Builder, gate, up)
	out := m.Op("Squeeze", m.Op("MatMul", m.Op("Gather", m.down, flat, onnx.IntAttr("axis", 0)),
		m.Op("Unsqueeze", act, m.Ints(-1))), m.Ints(-1))
	w := m.Op("Reshape", m.weights, m.Ints(-1, 1))
	if spoil == "squared weights" {
		w = m.Op("Mul", w, w)
	}
	if spoil == "times the tokens" { // a run on tokens of ones does not show it
		out = m.Op("Mul", out, m.Op("Squeeze", rows, m.Ints(-1)))
	}
	return m.Op("ReduceSum", m.Op("Reshape", m.Op("Mul", out, w), m.Ints(-1, k, h)), m.Ints(1),
		onnx.IntAttr("keepdims", 0))
}

func (m *moeBuilder) match(y value, activation string) *patterns.Match {
	return &patterns.Match{Pattern: "MoE", Op: "MoE", Inputs: []value{m.x, m.weights, m.ids, m.gateUp, m.down},
		Roles: map[value]fused.Role{m.x: fused.RoleTokens, m.weights: fused.RoleWeights, m.ids: fused.RoleIDs,
			m.gateUp: fused.RoleMatrix, m.down: fused.RoleMatrix},
		Outputs: []value{y}, Attributes: m.attributes(activation)}
}

func (m *moeBuilder) judge(y value, activation string, request ...Request) SiteReport {
	m.T.Helper()
	m.Out(y, "tokens", m.hidden)
	return judgeOne(m.T, m.Model, m.match(y, activation), request...)
}

func TestGatheredExperts(t *testing.T) {
	for _, c := range []struct {
		spoil, activation string
		typ               onnx.DataType
		reason            string
	}{
		{"", "silu", onnx.Float, ""},
		{"", "silu", onnx.Float16, ""},
		{"", "silu", onnx.BFloat16, ""},
		{"", "gelu_tanh", onnx.Float, "differs"},
		{"clamped", "silu", onnx.Float, ""},
		{"clamped elsewhere", "silu", onnx.Float, "differs"},
		{"swapped", "silu", onnx.Float, "differs"},
		{"first expert", "silu", onnx.Float, "differs"},
		{"squared weights", "silu", onnx.Float, "differs"},
	} {
		t.Run(c.spoil+" "+c.activation+" "+c.typ.String(), func(t *testing.T) {
			m := newMoE(t, c.typ, 5, 2, 8, 6)
			m.clamped = strings.HasPrefix(c.spoil, "clamped")
			y := m.gathered(c.spoil)
			match := m.match(y, c.activation)
			if c.spoil == "clamped elsewhere" {
				match.Attributes[2] = onnx.FloatAttr("limit", 6.99)
			}
			m.Out(y, "tokens", m.hidden)
			s := judgeOne(t, m.Model, match)
			if (s.Status == Fused) != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("%s: %s %+v, want a reason with %q", s.Status, s.Reason, s.Check, c.reason)
			}
			if s.Status == Fused && (s.Check == nil || s.Check.Cases < 20 || s.Check.Repairs != "") {
				t.Errorf("%+v", s.Check)
			}
		})
	}
}

// expert writes one expert applied to rows of tokens, in the graph of b.
func (m *moeBuilder) expert(b *rewritetest.Builder, rows, e value) value {
	pick := func(w value) value {
		return b.Op("Transpose", b.Op("Gather", w, e, onnx.IntAttr("axis", 0)), onnx.IntsAttr("perm", []int64{1, 0}))
	}
	y := b.Op("MatMul", rows, pick(m.gateUp))
	gate := b.Op("Slice", y, m.Ints(0), m.Ints(int64(m.inner)), m.Ints(-1))
	up := b.Op("Slice", y, m.Ints(int64(m.inner)), m.Ints(1<<40), m.Ints(-1))
	return b.Op("MatMul", m.unit(b, gate, up), pick(m.down))
}

// looped writes the experts as a Loop over all of them: each adds its result for all tokens, times their weights for
// it.
func (m *moeBuilder) looped() value {
	body := m.Graph.NewSubgraph("body")
	b := &rewritetest.Builder{T: m.T, Builder: &onnxtest.Builder{Model: m.Model, Graph: body}, Type: m.Type}
	e := body.AddInput("e", onnxtest.Type(onnx.Int64))
	cond := body.AddInput("cond", onnxtest.Type(onnx.Bool))
	sum := body.AddInput("sum", onnxtest.Type(m.Type, "tokens", m.hidden))
	mine := b.Op("Where", b.Op("Equal", m.ids, e), m.weights, m.Scalar(m.Type, 0))
	share := b.Op("ReduceSum", mine, m.Ints(1), onnx.IntAttr("keepdims", 1))
	body.AddOutput(b.Op("Identity", cond))
	body.AddOutput(b.Op("Add", sum, b.Op("Mul", m.expert(b, m.x, e), share)))
	zero := m.Op("Mul", m.x, m.Scalar(m.Type, 0))
	y := m.Graph.NewValue("y")
	trips := m.Graph.AddInitializer(onnx.NewInt64s("trips", []int64{int64(m.experts)}))
	m.Graph.AddNode("Loop", []value{m.Op("Squeeze", trips), nil, zero}, []value{y},
		onnx.GraphAttr("body", body)).Name = "loop"
	return m.Op("Identity", y)
}

// unrolled writes the experts as a traced loop over the experts that tokens use; hit is their number.
func (m *moeBuilder) unrolled(hit int) value {
	depth := m.Ints(int64(m.experts))
	values := m.Ints(0, 1)
	// [E, k, T]
	mask := m.Op("Transpose", m.Op("OneHot", m.ids, depth, values, onnx.IntAttr("axis", -1)),
		onnx.IntsAttr("perm", []int64{2, 1, 0}))
	picked := m.Op("Greater", m.Op("ReduceSum", mask, m.Ints(1, 2), onnx.IntAttr("keepdims", 0)), m.Ints(0))
	found := m.Op("Transpose", m.Op("NonZero", picked), onnx.IntsAttr("perm", []int64{1, 0})) // [hits, 1]
	parts := make([]value, hit)
	sizes := make([]int64, hit)
	for i := range parts {
		parts[i], sizes[i] = m.Graph.NewValue("expert"), 1
	}
	m.Graph.AddNode("Split", []value{found, m.Ints(sizes...)}, parts, onnx.IntAttr("axis", 0)).Name = "split"
	y := m.Op("Mul", m.x, m.Scalar(m.Type, 0))
	for _, p := range parts {
		e := m.Op("Squeeze", p, m.Ints(0, 1))
		at := m.Op("NonZero", m.Op("Gather", mask, e, onnx.IntAttr("axis", 0))) // places among the chosen, tokens
		token := m.Op("Gather", at, m.Ints(1), onnx.IntAttr("axis", 0))
		token = m.Op("Squeeze", token, m.Ints(0))
		out := m.expert(m.Builder, m.Op("Gather", m.x, token, onnx.IntAttr("axis", 0)), e)
		pairs := m.Op("Transpose", m.Op("Gather", at, m.Ints(1, 0), onnx.IntAttr("axis", 0)),
			onnx.IntsAttr("perm", []int64{1, 0}))
		w := m.Op("Unsqueeze", m.Op("GatherND", m.weights, pairs), m.Ints(-1))
		y = m.Op("ScatterND", y, m.Op("Unsqueeze", token, m.Ints(-1)), m.Op("Mul", out, w),
			onnx.StringAttr("reduction", "add"))
	}
	return y
}

func TestLoopedExperts(t *testing.T) {
	m := newMoE(t, onnx.Float, 5, 2, 8, 6)
	s := m.judge(m.looped(), "silu")
	if s.Status != Fused || s.Check.Repairs != "" {
		t.Fatalf("%s: %s", s.Status, s.Reason)
	}
	if n := rewritetest.CountOps(m.Model); n["MoE"] != 1 || n["Loop"] != 0 || n["MatMul"] != 0 || n["Mul"] != 0 {
		t.Errorf("left: %v", n)
	}
	checkRuns(t, m.Model)

	m = newMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := m.judge(m.looped(), "gelu"); s.Status != Refused || !strings.Contains(s.Reason, "differs") {
		t.Errorf("another activation: %s: %s", s.Status, s.Reason)
	}
}

// checkRuns demands that the patched model can be evaluated.
func checkRuns(t *testing.T, m *onnx.Model) {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids := reference.NewInts(onnx.Int64, []int{3, 2}, []int64{4, 0, 0, 1, 2, 4})
	in := map[string]*reference.Tensor{"ids": ids}
	for _, v := range m.Graph.Inputs {
		if v.Name != "ids" {
			typ, _ := v.Type()
			dims := []int64{3, typ.Dims[1].Value}
			if in[v.Name], err = prove.MakeInput(prove.Normal, 1, typ.DataType, dims); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := e.Run(in); err != nil {
		t.Error(err)
	}
}

// TestTracedExperts: a traced number of used experts makes most routings fail; the op serves all of them.
func TestTracedExperts(t *testing.T) {
	for _, hit := range []int{2, 4, 5} {
		m := newMoE(t, onnx.Float, 5, 2, 8, 6)
		s := m.judge(m.unrolled(hit), "silu")
		if s.Status != Fused {
			t.Fatalf("%d: %s: %s", hit, s.Status, s.Reason)
		}
		if want := fmt.Sprintf("the nodes fail unless the tokens go to %d of the 5 experts in all",
			hit); !strings.HasPrefix(s.Check.Repairs, want) || !strings.Contains(s.Check.Repairs, "Split") {
			t.Errorf("repairs: %q", s.Check.Repairs)
		}
		if hit < 5 {
			checkRuns(t, m.Model) // on four experts
		}
	}
	m := newMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := m.judge(m.unrolled(4), "relu"); s.Status != Refused || !strings.Contains(s.Reason, "differs") {
		t.Errorf("another activation: %s: %s", s.Status, s.Reason)
	}
	m = newMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := m.judge(m.unrolled(1), "silu"); s.Status != Refused || !strings.Contains(s.Reason, "fail for all of") {
		t.Errorf("never defined: %s: %s", s.Status, s.Reason)
	}
}

// TestGreatExperts: a site of great matrices is checked on few tokens that still reach all its experts, and its kernel
// runs on small matrices, and on matrices that are wide in one direction.
func TestGreatExperts(t *testing.T) {
	before := sites.BigMatrices
	t.Cleanup(func() { sites.BigMatrices = before })
	sites.BigMatrices = 1
	for _, spoil := range []string{"", "last expert", "kernel"} {
		m := newMoE(t, onnx.Float16, 11, 2, 8, 6)
		var sizes [][2]int64
		kernel := rewritetest.Kernel(func(_, out []*reference.Tensor) {
			if spoil == "kernel" {
				out[0].F[7] += 1
			}
		})
		check := func(op string, attrs []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
			sizes = append(sizes, [2]int64{in[3].Dims[2], in[4].Dims[2]})
			if len(in) != 5 || in[3].Dims[0] != 5 || in[0].DataType != onnx.Float16 {
				return nil, fmt.Errorf("kernel check of %v", in)
			}
			return kernel(op, attrs, in)
		}
		if spoil == "last expert" { // the one before replaces it
			m.ids = m.Op("Min", m.ids, m.Ints(int64(m.experts-2)))
		}
		y := m.gathered("")
		if spoil == "last expert" {
			m.ids = m.ids.Producer.Input(0)
		}
		s := m.judge(y, "silu", Request{KernelCheck: check})
		want := map[string]string{"last expert": "differs from the matched nodes",
			"kernel": "kernel cpu_fused_moe differs"}[spoil]
		run := map[string][][2]int64{"": {{52, 36}, {8, 36}, {52, 6}},
			"kernel": {{52, 36}}}[spoil] // as wide as the site in one direction
		if (s.Status == Fused) != (want == "") || !strings.Contains(s.Reason, want) || !slices.Equal(sizes, run) {
			t.Errorf("%q: %s: %s after runs of the kernel at %v", spoil, s.Status, s.Reason, sizes)
		}
	}
}

// TestCapacity: tokens over an expert's capacity are dropped, which only shows with enough tokens.
func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		capacity int64
		reason   string
	}{{40, "differs from the matched nodes on normal inputs of 42 tokens on 2 of 5 experts"}, {2, "differs"},
		{10000, "compares with 10000"}} {
		m := newMoE(t, onnx.Float, 5, 2, 8, 6)
		weights := m.weights
		oneHot := m.Op("OneHot", m.ids, m.Ints(5), m.Ints(0, 1), onnx.IntAttr("axis", -1))
		place := m.Op("CumSum", m.Op("ReduceSum", oneHot, m.Ints(1), onnx.IntAttr("keepdims", 0)),
			m.Op("Squeeze", m.Ints(0)))
		keep := m.Op("LessOrEqual", m.Op("GatherElements", place, m.ids, onnx.IntAttr("axis", 1)), m.Ints(c.capacity))
		m.weights = m.Op("Where", keep, weights, m.Scalar(onnx.Float, 0))
		y := m.gathered("")
		m.weights = weights
		s := m.judge(y, "silu")
		if (s.Status == Fused) != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
			t.Errorf("capacity %d: %s: %s", c.capacity, s.Status, s.Reason)
		}
	}
}

// TestExpertsForSeveralTokens: an expert returns zero for fewer than three tokens, while the number of tokens is fixed
// and enough for all.
func TestExpertsForSeveralTokens(t *testing.T) {
	for _, least := range []int64{1, 2, 3} {
		m := newMoE(t, onnx.Float, 4, 2, 8, 6)
		m.x, m.weights = m.In("six", 6, 8), m.In("weights_of_six", 6, 2)
		m.ids = m.Input("ids_of_six", onnx.Int64, 6, 2)
		weights := m.weights
		first := m.Op("Cast", m.Op("Equal", m.ids, m.Ints(1)), onnx.IntAttr("to", int64(onnx.Int64)))
		few := m.Op("Less", m.Op("ReduceSum", first, onnx.IntAttr("keepdims", 1)), m.Ints(least))
		off := m.Op("And", few, m.Op("Equal", m.ids, m.Ints(1)))
		m.weights = m.Op("Where", off, m.Scalar(onnx.Float, 0), weights)
		y := m.gathered("")
		m.weights = weights
		m.Out(y, 6, m.hidden)
		s := judgeOne(t, m.Model, m.match(y, "silu"))
		if (s.Status == Fused) != (least == 1) {
			t.Errorf("for %d tokens or more: %s: %s", least, s.Status, s.Reason)
		}
	}
}

// TestTokensBeforeAnAxis: tokens [n, 1, hidden] are checked with the tokens on their own axis.
func TestTokensBeforeAnAxis(t *testing.T) {
	m := newMoE(t, onnx.Float, 4, 2, 8, 6)
	m.x = m.In("column", "tokens", 1, m.hidden)
	rows := m.x
	// of [1, n, hidden] there is nothing to squeeze
	m.x = m.Op("Squeeze", m.Op("Expand", m.x, m.Ints(1, 1, 1)), m.Ints(1))
	y := m.Op("Unsqueeze", m.gathered(""), m.Ints(1))
	m.x = rows
	m.Out(y, "tokens", 1, m.hidden)
	if s := judgeOne(t, m.Model, m.match(y, "silu")); s.Status != Fused || s.Check.Repairs != "" {
		t.Errorf("%s: %s %+v", s.Status, s.Reason, s.Check)
	}
}
