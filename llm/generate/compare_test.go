package generate_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// nudged writes a model that adds by to the logits of one token.
func nudged(t *testing.T, path string, id int, by float32) string {
	t.Helper()
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	logits := m.Graph.Outputs[0]
	n := logits.Producer
	raw := m.Graph.NewValue("raw")
	raised := make([]float32, 160)
	raised[id] = by
	add := m.Graph.AddInitializer(onnx.NewFloat32s("raised", []int64{160}, raised))
	sum := m.Graph.AddNode("Add", []*onnx.Value{raw, add}, []*onnx.Value{m.Graph.NewValue("sum")})
	n.TakeOutput(0, raw)
	sum.TakeOutput(0, logits)
	out := filepath.Join(t.TempDir(), "nudged.onnx")
	must(t, onnx.Write(out, m))
	return out
}

// TestCompare finds the steps at which a changed model chooses another token, and separates near ties from differences.
func TestCompare(t *testing.T) {
	want := recordings(t)["positions-fp32"]
	path := modelPath("positions-fp32")
	a := open(t, path)
	o := generate.Options{MaxTokens: 12}
	c, err := generate.Compare(t.Context(), a, a, want.Prompts[1], nil, o, generate.NearTie)
	must(t, err)
	if !c.Passed || c.First != -1 || len(c.Steps) != 12 || c.MaxAbs != 0 || !slices.Equal(c.IDs, want.Greedy[1]) {
		t.Errorf("a model differs from itself: %+v", c)
	}
	follow := []int64{7, 8, 9}
	if c, err = generate.Compare(t.Context(), a, a, want.Prompts[1], follow, o, 0); err != nil ||
		!slices.Equal(c.IDs, follow) || c.Steps[0].Want != want.Greedy[1][0] || !c.Passed {
		t.Errorf("following %v: %+v, %v", follow, c, err)
	}
	if _, err = generate.Compare(t.Context(), a, a, want.Prompts[1], []int64{160}, o, 0); err == nil {
		t.Error("a token that the model lacks is followed")
	}
	// Raise the second best token of the step with the least margin by a little more than the margin.
	step := slices.Index(want.Gaps[1], slices.Min(want.Gaps[1]))
	var second int
	i := 0
	for _, err := range a.Generate(t.Context(), want.Prompts[1],
		generate.Options{MaxTokens: step + 1, Choose: func(_ int, logits []float32) (int64, error) {
			rest := slices.Clone(logits)
			rest[want.Greedy[1][i]] = float32(math.Inf(-1))
			second = slices.Index(rest, slices.Max(rest))
			i++
			return want.Greedy[1][i-1], nil
		}}) {
		must(t, err)
	}
	margin := want.Gaps[1][step]
	b := open(t, nudged(t, path, second, float32(margin)+0.004))
	for _, limit := range []float64{0.001, margin + 0.01} {
		c, err = generate.Compare(t.Context(), a, b, want.Prompts[1], nil, o, limit)
		must(t, err)
		tie := limit > margin
		s := c.Steps[step]
		if c.First != step || s.Want != want.Greedy[1][step] || s.Got != int64(second) || c.Passed != tie ||
			s.NearTie != tie || len(c.Steps) != 12 {
			t.Errorf("limit %g: %+v, passed %v, first %d", limit, s, c.Passed, c.First)
		}
		if math.Abs(float64(*s.WantMargin)-margin) > 1e-3 || math.Abs(float64(s.GotMargin)-0.004) > 1e-3 ||
			math.Abs(float64(*s.MaxAbs)-margin-0.004) > 1e-3 || !(*s.KL > 0) {
			t.Errorf("limit %g: margins %g and %g, max abs %g, KL %g", limit, *s.WantMargin, s.GotMargin, *s.MaxAbs,
				*s.KL)
		}
	}
}

func TestCompareRecorded(t *testing.T) {
	want := recordings(t)["cache-fp16"]
	g := open(t, modelPath("cache-fp16"))
	r := generate.Recorded{Prompt: want.Prompts[2], IDs: want.Greedy[2], Gaps: want.Gaps[2]}
	c, err := generate.CompareRecorded(t.Context(), g, r, generate.Options{StopTokens: want.Greedy[2]},
		generate.TieLimit(g, nil))
	must(t, err)
	if !c.Passed || c.Differing != 0 || len(c.Steps) != len(r.IDs) || c.NearTie != generate.NearTieHalf {
		t.Errorf("%+v", c)
	}
	r.IDs = slices.Clone(r.IDs)
	r.IDs[4]++
	if c, err = generate.CompareRecorded(t.Context(), g, r, generate.Options{}, 0.1); err != nil || c.Passed ||
		c.First != 4 {
		t.Errorf("another token passes: %+v, %v", c, err)
	}
	r.IDs[4] = 160
	if _, err = generate.CompareRecorded(t.Context(), g, r, generate.Options{}, 0.1); err == nil ||
		!strings.Contains(err.Error(), "token 4 is 160") {
		t.Error(err)
	}
	r.Gaps = r.Gaps[:3]
	if _, err = generate.CompareRecorded(t.Context(), g, r, generate.Options{}, 0.1); err == nil {
		t.Error("gaps of another number pass")
	}
}
