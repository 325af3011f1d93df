package sites_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

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
			m := rewritetest.NewMoE(t, c.typ, 5, 2, 8, 6)
			m.Clamped = strings.HasPrefix(c.spoil, "clamped")
			y := m.Gathered(c.spoil)
			match := m.Match(y, c.activation)
			if c.spoil == "clamped elsewhere" {
				match.Attributes[2] = onnx.FloatAttr("limit", 6.99)
			}
			m.Out(y, "tokens", m.Hidden)
			s := judge(t, m.Model, match)
			if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
				t.Errorf("%s, want a reason with %q", s, c.reason)
			}
			if s.fused && (s.check == nil || s.check.Cases < 20 || s.check.Repairs != "") {
				t.Errorf("%+v", s.check)
			}
		})
	}
}

func TestLoopedExperts(t *testing.T) {
	m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	s := judgeExperts(m, m.Looped(), "silu")
	if !s.fused || s.check.Repairs != "" {
		t.Fatalf("%s", s)
	}

	m = rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := judgeExperts(m, m.Looped(), "gelu"); s.fused || !strings.Contains(s.reason, "differs") {
		t.Errorf("another activation: %s", s)
	}
}

// TestTracedExperts: a traced number of used experts makes most routings fail; the op serves all of them.
func TestTracedExperts(t *testing.T) {
	for _, hit := range []int{2, 4, 5} {
		m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
		s := judgeExperts(m, m.Unrolled(hit), "silu")
		if !s.fused {
			t.Fatalf("%d: %s", hit, s)
		}
		if want := fmt.Sprintf("the nodes fail unless the tokens go to %d of the 5 experts in all",
			hit); !strings.HasPrefix(s.check.Repairs, want) || !strings.Contains(s.check.Repairs, "Split") {
			t.Errorf("repairs: %q", s.check.Repairs)
		}
	}
	m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := judgeExperts(m, m.Unrolled(4), "relu"); s.fused || !strings.Contains(s.reason, "differs") {
		t.Errorf("another activation: %s", s)
	}
	m = rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
	if s := judgeExperts(m, m.Unrolled(1), "silu"); s.fused || !strings.Contains(s.reason, "fail for all of") {
		t.Errorf("never defined: %s", s)
	}
}

// TestGreatExperts: a site of great matrices is checked on few tokens that still reach all its experts, and its kernel
// runs on small matrices, and on matrices that are wide in one direction.
func TestGreatExperts(t *testing.T) {
	before := sites.BigMatrices
	t.Cleanup(func() { sites.BigMatrices = before })
	sites.BigMatrices = 1
	for _, spoil := range []string{"", "last expert", "kernel"} {
		m := rewritetest.NewMoE(t, onnx.Float16, 11, 2, 8, 6)
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
			m.IDs = m.Op("Min", m.IDs, m.Ints(int64(m.Experts-2)))
		}
		y := m.Gathered("")
		if spoil == "last expert" {
			m.IDs = m.IDs.Producer.Input(0)
		}
		s := judgeExperts(m, y, "silu", check)
		want := map[string]string{"last expert": "differs from the matched nodes",
			"kernel": "kernel handmade differs"}[spoil]
		run := map[string][][2]int64{"": {{52, 36}, {8, 36}, {52, 6}},
			"kernel": {{52, 36}}}[spoil] // as wide as the site in one direction
		if s.fused != (want == "") || !strings.Contains(s.reason, want) || !slices.Equal(sizes, run) {
			t.Errorf("%q: %s after runs of the kernel at %v", spoil, s, sizes)
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
		m := rewritetest.NewMoE(t, onnx.Float, 5, 2, 8, 6)
		weights := m.Weights
		oneHot := m.Op("OneHot", m.IDs, m.Ints(5), m.Ints(0, 1), onnx.IntAttr("axis", -1))
		place := m.Op("CumSum", m.Op("ReduceSum", oneHot, m.Ints(1), onnx.IntAttr("keepdims", 0)),
			m.Op("Squeeze", m.Ints(0)))
		keep := m.Op("LessOrEqual", m.Op("GatherElements", place, m.IDs, onnx.IntAttr("axis", 1)), m.Ints(c.capacity))
		m.Weights = m.Op("Where", keep, weights, m.Scalar(onnx.Float, 0))
		y := m.Gathered("")
		m.Weights = weights
		s := judgeExperts(m, y, "silu")
		if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
			t.Errorf("capacity %d: %s", c.capacity, s)
		}
	}
}

// TestExpertsForSeveralTokens: an expert returns zero for fewer than three tokens, while the number of tokens is fixed
// and enough for all.
func TestExpertsForSeveralTokens(t *testing.T) {
	for _, least := range []int64{1, 2, 3} {
		m := rewritetest.NewMoE(t, onnx.Float, 4, 2, 8, 6)
		m.X, m.Weights = m.In("six", 6, 8), m.In("weights_of_six", 6, 2)
		m.IDs = m.Input("ids_of_six", onnx.Int64, 6, 2)
		weights := m.Weights
		first := m.Op("Cast", m.Op("Equal", m.IDs, m.Ints(1)), onnx.IntAttr("to", int64(onnx.Int64)))
		few := m.Op("Less", m.Op("ReduceSum", first, onnx.IntAttr("keepdims", 1)), m.Ints(least))
		off := m.Op("And", few, m.Op("Equal", m.IDs, m.Ints(1)))
		m.Weights = m.Op("Where", off, m.Scalar(onnx.Float, 0), weights)
		y := m.Gathered("")
		m.Weights = weights
		m.Out(y, 6, m.Hidden)
		s := judge(t, m.Model, m.Match(y, "silu"))
		if s.fused != (least == 1) {
			t.Errorf("for %d tokens or more: %s", least, s)
		}
	}
}

// TestTokensBeforeAnAxis: tokens [n, 1, hidden] are checked with the tokens on their own axis.
func TestTokensBeforeAnAxis(t *testing.T) {
	m := rewritetest.NewMoE(t, onnx.Float, 4, 2, 8, 6)
	m.X = m.In("column", "tokens", 1, m.Hidden)
	rows := m.X
	// of [1, n, hidden] there is nothing to squeeze
	m.X = m.Op("Squeeze", m.Op("Expand", m.X, m.Ints(1, 1, 1)), m.Ints(1))
	y := m.Op("Unsqueeze", m.Gathered(""), m.Ints(1))
	m.X = rows
	m.Out(y, "tokens", 1, m.Hidden)
	if s := judge(t, m.Model, m.Match(y, "silu")); !s.fused || s.check.Repairs != "" {
		t.Errorf("%s", s)
	}
}
