package sample_test

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/sample"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

func TestSupports(t *testing.T) {
	const f32, f16, i64 = onnx.Float, onnx.Float16, onnx.Int64
	optest.RunSupports(t, []optest.SupportsCase{
		{"no penalties", sample.Op, nil, []onnx.DataType{f16, f32, i64}, [][]int64{{2, 9}, {2, 7}, {2}}, ""},
		{"penalties", sample.Op, nil, []onnx.DataType{f32, f32, i64, i64, i64},
			[][]int64{{2, 9}, {2, 7}, {2}, {2, 0}, {2}}, ""},
		{"no prompt", sample.Op, nil, []onnx.DataType{f32, f32, i64, i64}, nil, "tokens and prompt together"},
		{"other rows", sample.Op, nil, []onnx.DataType{f32, f32, i64}, [][]int64{{2, 9}, {1, 7}, {2}}, "controls"},
		{"too few controls", sample.Op, nil, []onnx.DataType{f32, f32, i64}, [][]int64{{2, 9}, {2, 6}, {2}},
			"controls"},
		{"half controls", sample.Op, nil, []onnx.DataType{f16, f16, i64}, nil, "float32"},
		{"no token", sample.Op, nil, []onnx.DataType{f32, f32, i64}, [][]int64{{2, 0}, {2, 7}, {2}}, "a token"},
		{"too many", sample.Op, nil, []onnx.DataType{f32, f32, i64}, [][]int64{{2, sample.Most + 1}, {2, 7}, {2}},
			"no more tokens"},
	})
}

// row is what one row of the op reads.
type row struct {
	logits   []float64
	controls []float64
	random   int64
	tokens   []int64
	prompt   int
}

// body returns the token that the definition chooses.
func body(t *testing.T, r row) int64 {
	t.Helper()
	in := []*reference.Tensor{reference.NewFloats(onnx.Float, []int{1, len(r.logits)}, r.logits),
		reference.NewFloats(onnx.Float, []int{1, sample.Controls}, r.controls),
		reference.NewInts(onnx.Int64, []int{1}, []int64{r.random}),
		reference.NewInts(onnx.Int64, []int{1, len(r.tokens)}, r.tokens),
		reference.NewInts(onnx.Int64, []int{1}, []int64{int64(r.prompt)})}
	if r.tokens == nil {
		in = in[:3]
	}
	site := op.Site{Opset: op.MinOpset}
	for _, x := range in {
		site.Types = append(site.Types, x.DataType)
	}
	got, err := optest.Evaluate(sample.Op, site, in)
	if err != nil {
		t.Fatal(err)
	}
	return got[0].I[0]
}

// naive returns the token in float64: with probabilities instead of weights, by sorting all of them.
func naive(r row) int64 {
	l, c := slices.Clone(r.logits), r.controls
	for id := range l {
		seen, n := slices.Contains(r.tokens, int64(id)), 0.0
		for i, token := range r.tokens {
			if token == int64(id) && i >= r.prompt {
				n++
			}
		}
		if factor := c[sample.Repetition]; seen && factor > 0 {
			if l[id] < 0 {
				factor = 1 / factor
			}
			l[id] /= factor
		}
		if l[id] -= c[sample.Frequency] * n; n > 0 {
			l[id] -= c[sample.Presence]
		}
	}
	order := make([]int, len(l))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l[b], l[a]) })
	if c[sample.Temperature] == 0 {
		return int64(order[0])
	}
	p := make([]float64, len(l))
	softmax := func() {
		sum := 0.0
		for i := range l {
			p[i] = math.Exp((l[i] - l[order[0]]) / c[sample.Temperature])
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
	}
	if k := int(c[sample.TopK]); k > 0 && k < len(l) {
		least := l[order[k-1]]
		for i := range l {
			if l[i] < least {
				l[i] = math.Inf(-1)
			}
		}
	}
	softmax()
	if limit := c[sample.TopP]; limit > 0 && limit < 1 {
		sum := 0.0
		for _, i := range order {
			if sum >= limit {
				l[i] = math.Inf(-1)
			}
			sum += p[i]
		}
	}
	for i := range l {
		if p[i] < c[sample.MinP]*p[order[0]] {
			l[i] = math.Inf(-1)
		}
	}
	softmax()
	left := float64(r.random) / sample.Randoms
	for i := range p {
		if left -= p[i]; left < 0 {
			return int64(i)
		}
	}
	return int64(len(p) - 1)
}

// TestRules compares each rule by itself, and all together, with the naive one: 300 rows each.
func TestRules(t *testing.T) {
	draws := []func(*rand.Rand) float64{
		func(r *rand.Rand) float64 { return 0.25 + 2*r.Float64() },
		func(r *rand.Rand) float64 { return float64(r.IntN(9)) },
		(*rand.Rand).Float64, (*rand.Rand).Float64, func(r *rand.Rand) float64 { return 0.5 + r.Float64() },
		func(r *rand.Rand) float64 { return 4*r.Float64() - 2 },
		func(r *rand.Rand) float64 { return 4*r.Float64() - 2 }}
	for rule := -1; rule <= len(draws); rule++ {
		t.Run(fmt.Sprint("control ", rule), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(rule+9), 4))
			for range 300 {
				r := row{logits: make([]float64, 1+rng.IntN(40)), controls: make([]float64, sample.Controls),
					random: rng.Int64N(sample.Randoms), prompt: rng.IntN(9)}
				r.controls[sample.Temperature] = float64(rng.IntN(4)) / 2
				for i := range r.controls {
					if i == rule || rule == len(draws) {
						r.controls[i] = float64(float32(draws[i](rng)))
					}
				}
				for i := range r.logits {
					r.logits[i] = math.Round(32*rng.NormFloat64()) / 8 // many are equal
				}
				for range rng.IntN(12) {
					r.tokens = append(r.tokens, rng.Int64N(int64(len(r.logits)))+rng.Int64N(3)-1)
				}
				if got, want := body(t, r), naive(r); got != want {
					t.Fatalf("%+v: token %d, want %d", r, got, want)
				}
			}
		})
	}
}

// TestProbabilities: each token is chosen for exactly its share of the random numbers, to 2^-40. So a proposed token x
// is chosen with its chance p(x) = min(1, p(x)/q(x)), q being 1, and other tokens as the rest of p says: speculative
// decoding needs no other rule.
func TestProbabilities(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	for range 40 {
		r := row{controls: []float64{0.5 + rng.Float64(), float64(rng.IntN(9)), 0, 0, 0, 0, 0}}
		r.controls[sample.Temperature] = float64(float32(r.controls[sample.Temperature]))
		for _, l := range rng.Perm(1 + rng.IntN(12)) {
			r.logits = append(r.logits, float64(l)/2)
		}
		n, k := len(r.logits), int(r.controls[sample.TopK])
		sums := make([]uint64, n+1)
		for id, l := range r.logits {
			p := 0.0
			if k == 0 || l >= float64(n-k)/2 {
				p = math.Exp((l - float64(n-1)/2) / r.controls[sample.Temperature])
			}
			sums[id+1] = sums[id] + uint64(math.Round(p*(1<<50)))
		}
		const near = 1 << 13 // of 2^53 random numbers
		for id := range n {
			if sums[id] == sums[id+1] {
				continue
			}
			for end, off := range []int64{near, -near} {
				high, low := bits.Mul64(sums[id+end], sample.Randoms)
				random, _ := bits.Div64(high, low, sums[n])
				r.random = int64(random) + off
				if got := body(t, r); got != int64(id) {
					t.Fatalf("%+v: token %d, want %d from %d to %d of %d", r, got, id, sums[id], sums[id+1], sums[n])
				}
			}
		}
	}
}

// TestHostile: rows without a choice return -1, and options at their limits are what they mean.
func TestHostile(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	controls := func(list ...float64) []float64 { return append(list, make([]float64, sample.Controls-len(list))...) }
	for name, c := range map[string]struct {
		row
		want int64
	}{
		"NaN":           {row{logits: []float64{1, nan, 3}, controls: controls(1)}, -1},
		"NaN, greedy":   {row{logits: []float64{1, nan, 3}, controls: controls()}, -1},
		"infinity":      {row{logits: []float64{1, inf}, controls: controls(1)}, -1},
		"all -infinity": {row{logits: []float64{-inf, -inf}, controls: controls(1)}, -1},
		"one is finite": {row{logits: []float64{-inf, -5, -inf},
			controls: controls(1), random: sample.Randoms - 1}, 1},
		"one token": {row{logits: []float64{-7}, controls: controls(1, 1, 0.5, 1)}, 0},
		"infinite by penalty": {row{logits: []float64{1e38, 1},
			controls: controls(1, 0, 0, 0, 1e-3), tokens: []int64{0}}, -1},
		"infinite by temperature": {row{logits: []float64{1e20, 1}, controls: controls(1e-30)}, -1},
		"NaN temperature":         {row{logits: []float64{1, 2}, controls: controls(nan)}, -1},
		"negative temperature":    {row{logits: []float64{1, 2}, controls: controls(-1)}, -1},
		"top-p above 1":           {row{logits: []float64{1, 2}, controls: controls(1, 0, 1.5)}, -1},
		"NaN min-p":               {row{logits: []float64{1, 2}, controls: controls(1, 0, 0, nan)}, -1},
		"presence of 3":           {row{logits: []float64{1, 2}, controls: controls(1, 0, 0, 0, 0, 0, 3)}, -1},
		"ties, greedy":            {row{logits: []float64{1, 4, 4}, controls: controls()}, 1},
		"both zeros":              {row{logits: []float64{math.Copysign(0, -1), 0}, controls: controls()}, 0},
		"ties of top-k stay": {row{logits: []float64{4, 4, 4, 0},
			controls: controls(1, 1), random: sample.Randoms - 1}, 2},
		"ties of top-p, lowest id": {row{logits: []float64{0, 4, 4, 4},
			controls: controls(1, 0, 1e-6), random: sample.Randoms - 1}, 1},
		"top-k above all": {row{logits: []float64{4, 4},
			controls: controls(1, 99), random: sample.Randoms - 1}, 1},
		"top-p 1": {row{logits: []float64{4, 4},
			controls: controls(1, 0, 1), random: sample.Randoms - 1}, 1},
		"min-p 1": {row{logits: []float64{3, 4, 2},
			controls: controls(1, 0, 0, 1), random: sample.Randoms - 1}, 1},
		"random too great": {row{logits: []float64{4, 4},
			controls: controls(1), random: math.MaxInt64}, 1},
		"negative random": {row{logits: []float64{4, 4},
			controls: controls(1), random: math.MinInt64}, 0},
		"no token ids": {row{logits: []float64{4, 5}, controls: controls(0, 0, 0, 0, 2),
			tokens: []int64{-1, 2, math.MaxInt64, math.MinInt64}}, 1},
		"prompt of all": {row{logits: []float64{4, 5}, controls: controls(0, 0, 0, 0, 0, 2), tokens: []int64{1},
			prompt: 7}, 1},
	} {
		if got := body(t, c.row); got != c.want {
			t.Errorf("%s: token %d, want %d", name, got, c.want)
		}
	}
}

// TestWeight: weights are within a unit of the exponential, fall with the distance, and end at 0.
func TestWeight(t *testing.T) {
	last := int64(sample.One)
	for d := 0.0; d > -30; d -= 0x1p-8 {
		w := sample.Weight(d)
		if math.Abs(float64(w)-math.Exp(d)*sample.One) > 1 || w > last {
			t.Fatalf("Weight(%v) = %d after %d, want %v", d, w, last, math.Exp(d)*sample.One)
		}
		last = w
	}
	if w := sample.Weight(0); w != sample.One {
		t.Errorf("Weight(0) = %d", w)
	}
	for _, d := range []float64{-29.5, math.Inf(-1), math.NaN()} {
		if w := sample.Weight(d); w != 0 {
			t.Errorf("Weight(%v) = %d", d, w)
		}
	}
}
