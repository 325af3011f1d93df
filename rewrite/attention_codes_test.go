package rewrite

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/attentions"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// sizedInputs returns random inputs for named sizes; "past + queries" is the sum of two. great is the magnitude of
// floats. Masks hold 0 and 1, and 1 for the last key.
func sizedInputs(t *testing.T, m *onnx.Model, sizes map[string]int, great func(name string) float64,
) map[string]*reference.Tensor {
	t.Helper()
	in := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		var dims []int64
		for _, d := range typ.Dims {
			n := d.Value
			if n < 0 {
				n = 0
				for name := range strings.SplitSeq(d.Param, " + ") {
					n += int64(sizes[name])
				}
			}
			dims = append(dims, n)
		}
		x, err := prove.MakeInput(prove.Normal, i, onnx.Float, dims)
		if err != nil {
			t.Fatal(err)
		}
		if typ.DataType.IsFloat() {
			for k := range x.F {
				x.F[k] = prove.RoundTo(onnx.Float, x.F[k]*great(v.Name))
			}
		} else {
			list := make([]int64, len(x.F))
			width := int(dims[len(dims)-1])
			for k, y := range x.F {
				if y > -0.5 && typ.DataType != onnx.Bool || y > 0.5 || k%width == width-1 && typ.DataType != onnx.Bool {
					list[k] = 1
				}
			}
			x = reference.NewInts(typ.DataType, x.Shape, list)
		}
		in[v.Name] = x
	}
	return in
}

// sameResults compares the outputs of two models. If numbers is set, b may return a number for a's NaN.
func sameResults(t *testing.T, a, b *onnx.Model, in map[string]*reference.Tensor, numbers bool) bool {
	t.Helper()
	want, got := rewritetest.Run(t, a, in), rewritetest.Run(t, b, in)
	for i, v := range a.Graph.Outputs {
		w, g := want[v.Name], got[b.Graph.Outputs[i].Name]
		if !slices.Equal(w.Shape, g.Shape) {
			return false
		}
		scale := 0.0
		for _, x := range w.F {
			if !math.IsInf(x, 0) && !math.IsNaN(x) {
				scale = max(scale, math.Abs(x))
			}
		}
		for k, x := range w.F {
			y := g.F[k]
			if math.IsNaN(x) && (numbers || math.IsNaN(y)) || x == y {
				continue
			}
			if !(math.Abs(x-y) <= 256*prove.Spacing(onnx.Float, scale)) {
				return false
			}
		}
	}
	return true
}

// TestPublishedAttention patches the attention code of published models, and compares it with the original.
func TestPublishedAttention(t *testing.T) {
	for _, c := range attentions.Published() {
		t.Run(c.Name, func(t *testing.T) {
			m := c.Model()
			r := apply(t, m)
			stays := strings.HasPrefix(c.Want, "missed") || c.Want == "nothing"
			if n := r.pattern(fused.AttentionName).Fused; (n == 1) == stays {
				t.Fatalf("%d fused: %+v", n, r.Sites)
			}
			for _, sizes := range []map[string]int{
				{"batch": 2, "sequence": 8, "past": 0, "encoded": 6, "relative": 16, "count": 3},
				{"batch": 1, "sequence": 1, "past": 5, "encoded": 3, "relative": 2, "count": 1},
				{"batch": 3, "sequence": 16, "past": 20, "encoded": 11, "relative": 32, "count": 2}} {
				if stays || sizes["sequence"] == 1 && c.Name == "Longformer" {
					continue
				}
				in := sizedInputs(t, m, sizes, func(string) float64 { return 1 })
				if !sameResults(t, c.Model(), m, in, true) {
					t.Errorf("%v: differs", sizes)
				}
			}
		})
	}
}

// TestLookalikes patches blocks that look like attention but differ from it at some sizes or for some scores. Fused
// blocks must return the same results there.
func TestLookalikes(t *testing.T) {
	inputs := func(t *testing.T, m *onnx.Model, s attentions.Sizes) map[string]*reference.Tensor {
		in := sizedInputs(t, m, map[string]int{"batch": s.Batch, "queries": s.Queries, "past": s.Past},
			func(name string) float64 {
				if s.Scores == 0 || strings.HasSuffix(name, "v") || math.IsInf(s.Scores, 0) {
					return 1
				}
				return math.Sqrt(s.Scores)
			})
		if math.IsInf(s.Scores, 0) {
			in["q"].F[3] = s.Scores
		}
		return in
	}
	usual := attentions.Usual()
	left := 0
	for _, l := range attentions.Lookalikes() {
		t.Run(l.Name, func(t *testing.T) {
			original, m := l.Model(), l.Model()
			fused := apply(t, m).pattern(fused.AttentionName).Fused == 1
			if l.Open {
				if left++; fused {
					t.Error("is fused")
				}
				return
			}
			if !fused {
				t.Log("is left")
				left++
			}
			for _, s := range []attentions.Sizes{{Batch: 2, Queries: 3}, {Batch: 1, Queries: 4, Past: 5}, l.At} {
				in := inputs(t, original, s)
				if same := sameResults(t, original, usual, in, false); same == (s == l.At) {
					t.Errorf("%+v: the same as usual: %v", s, same)
				}
				if fused && !sameResults(t, original, m, in, false) {
					t.Errorf("%+v: differs", s)
				}
			}
		})
	}
	t.Logf("%d of %d are left", left, len(attentions.Lookalikes()))
}

// TestRandomMasks patches attention with random masks, and compares it at sizes where the masks' numbers matter.
func TestRandomMasks(t *testing.T) {
	for seed := range uint64(24) {
		original, mask := attentions.Random(seed)
		m, _ := attentions.Random(seed)
		if apply(t, m).pattern(fused.AttentionName).Fused == 0 {
			t.Errorf("%d: %s: is left", seed, mask)
		}
		for _, s := range []map[string]int{{"batch": 2, "queries": 5, "past": 4},
			{"batch": 1, "queries": 17, "past": 110}, {"batch": 1, "queries": 3, "past": 254},
			{"batch": 1, "queries": 3, "past": 2998},
			{"batch": 1, "queries": 2, "past": 4095}, {"batch": 1, "queries": 2, "past": 6100}} {
			in := sizedInputs(t, original, s, func(string) float64 { return 1 })
			if !sameResults(t, original, m, in, true) {
				t.Errorf("%d: %s: differs at %v", seed, mask, s)
			}
		}
	}
}
