package generate

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

type samplingCase struct {
	Logits  string             `json:"logits"`
	Options map[string]float64 `json:"options"`
	Greedy  *int64             `json:"greedy"`
	IDs     []int              `json:"ids"`
	Probs   []float64          `json:"probs"`
}

// samplingCases reads the recorded results of transformers' logits processors: testdata/sampling/record.py.
func samplingCases(t *testing.T) (logits map[string][]float32, prompt, generated []int64, cases []samplingCase) {
	t.Helper()
	recorded, err := os.Open("testdata/sampling/cases.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer recorded.Close()
	data, err := gzip.NewReader(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Logits            map[string][]*float32
		Prompt, Generated []int64
		Cases             []samplingCase
	}
	if err := json.NewDecoder(data).Decode(&file); err != nil {
		t.Fatal(err)
	}
	logits = map[string][]float32{}
	for name, values := range file.Logits {
		for _, v := range values {
			if v == nil {
				logits[name] = append(logits[name], float32(math.Inf(-1)))
			} else {
				logits[name] = append(logits[name], *v)
			}
		}
	}
	return logits, file.Prompt, file.Generated, file.Cases
}

func samplingOf(t *testing.T, options map[string]float64) Sampling {
	t.Helper()
	var s Sampling
	for name, v := range options {
		switch name {
		case "temperature":
			s.Temperature = v
		case "top_k":
			s.TopK = int(v)
		case "top_p":
			s.TopP = v
		case "min_p":
			s.MinP = v
		case "repetition_penalty":
			s.RepetitionPenalty = v
		case "frequency_penalty":
			s.FrequencyPenalty = v
		case "presence_penalty":
			s.PresencePenalty = v
		default:
			t.Fatalf("option %q", name)
		}
	}
	return s
}

// The remaining tokens and their probabilities are those of transformers.
func TestSamplingAsTransformers(t *testing.T) {
	logits, prompt, generated, cases := samplingCases(t)
	if len(cases) < 60 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		s, err := NewSampler(samplingOf(t, c.Options))
		if err != nil {
			t.Fatal(err)
		}
		scores := slices.Clone(logits[c.Logits])
		if c.Greedy != nil {
			got, err := s.Next(scores, prompt, generated)
			if err != nil || got != *c.Greedy {
				t.Errorf("%s %v: %d, %v; transformers gives %d", c.Logits, c.Options, got, err, *c.Greedy)
			}
			continue
		}
		if s.opts.penalises() {
			scores = s.penalised(scores, prompt, generated)
		}
		best, err := greatest(scores)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := s.distribution(scores, best)
		if err != nil {
			t.Fatal(err)
		}
		var total float64
		for _, token := range tokens {
			total += float64(token.weight)
		}
		got := map[int]float64{}
		for _, token := range tokens {
			got[token.id] = float64(token.weight) / total
		}
		for i, id := range c.IDs {
			p, ok := got[id]
			delete(got, id)
			if !ok || math.Abs(p-c.Probs[i]) > 1e-6 {
				t.Errorf("%s %v: token %d has probability %v, in transformers %v", c.Logits, c.Options, id, p,
					c.Probs[i])
			}
		}
		for id, p := range got {
			if p > 1e-37 { // float32 holds it, as in transformers' softmax
				t.Errorf("%s %v: token %d with probability %v is left, not in transformers", c.Logits, c.Options, id, p)
			}
		}
	}
}

// Among equal logits, greedy decoding and top-p take the lowest id.
func TestSamplingTies(t *testing.T) {
	logits := []float32{1, 4, 4, 0, 4}
	for _, opts := range []Sampling{{}, {Temperature: 1, TopP: 0.01}} {
		s, err := NewSampler(opts)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := s.Next(logits, nil, nil); err != nil || id != 1 {
			t.Errorf("%+v: %d, %v", opts, id, err)
		}
	}
}

// The drawn tokens follow the remaining distribution: Pearson's chi-square of 20,000 draws is below its 99.99% point by
// the Wilson-Hilferty formula. The seeds are fixed, so that the test always passes or always fails.
func TestSamplingDraws(t *testing.T) {
	logits, prompt, generated, cases := samplingCases(t)
	const draws = 20_000
	for i, c := range cases {
		if c.Greedy != nil || c.Logits != "normal" && c.Logits != "ties" {
			continue
		}
		opts := samplingOf(t, c.Options)
		opts.Seed = uint64(i)
		s, err := NewSampler(opts)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[int64]float64{}
		for range draws {
			id, err := s.Next(logits[c.Logits], prompt, generated)
			if err != nil {
				t.Fatal(err)
			}
			counts[id]++
		}
		var chi2, cells, rareWant, rareGot float64
		for j, id := range c.IDs {
			want, got := c.Probs[j]*draws, counts[int64(id)]
			delete(counts, int64(id))
			if want < 8 { // too few for the approximation: pooled
				rareWant, rareGot = rareWant+want, rareGot+got
				continue
			}
			chi2, cells = chi2+(got-want)*(got-want)/want, cells+1
		}
		if rareWant >= 8 {
			chi2, cells = chi2+(rareGot-rareWant)*(rareGot-rareWant)/rareWant, cells+1
		}
		if len(counts) > 0 {
			t.Errorf("%s %v: tokens %v were drawn", c.Logits, c.Options, counts)
		}
		if df := cells - 1; df > 0 {
			limit := df * math.Pow(1-2/(9*df)+3.719*math.Sqrt(2/(9*df)), 3)
			if chi2 > limit {
				t.Errorf("%s %v: chi-square %.1f of %v degrees of freedom, limit %.1f", c.Logits, c.Options, chi2, df,
					limit)
			}
		}
	}
}

// Equal seeds draw equal tokens, and other seeds others. The test pins the numbers, as Sampling promises.
func TestSamplingSeed(t *testing.T) {
	logits, _, _, _ := samplingCases(t)
	draw := func(seed uint64) (ids []int64) {
		s, err := NewSampler(Sampling{Temperature: 1, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			id, err := s.Next(logits["normal"], nil, ids)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	if got, want := draw(42), []int64{56, 56, 11, 4, 13, 56, 56, 30}; !slices.Equal(got, want) {
		t.Errorf("seed 42: %v, expected %v", got, want)
	}
	if a, b := draw(1), draw(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 both give %v", a)
	}
}

// Next does not change the logits, and skips ids that have no logit.
func TestSamplingLeavesLogits(t *testing.T) {
	logits := []float32{1, 2, 3}
	s, err := NewSampler(Sampling{Temperature: 1, RepetitionPenalty: 1.5, FrequencyPenalty: 1, TopK: 2, TopP: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(logits, []int64{2, 7, -1}, []int64{0, 3, math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits, []float32{1, 2, 3}) {
		t.Errorf("logits are now %v", logits)
	}
}

func TestSamplingErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		opts Sampling
		want string
	}{
		{Sampling{Temperature: -0.1}, "temperature -0.1: must be 0 (greedy) or above"},
		{Sampling{Temperature: nan}, "temperature NaN"},
		{Sampling{Temperature: inf}, "temperature +Inf"},
		{Sampling{Temperature: 1e-60}, "temperature 1e-60"},
		{Sampling{TopK: -1}, "top-k -1: must be 0 (all tokens) or above"},
		{Sampling{TopP: 1.01}, "top-p 1.01: must be from 0 to 1"},
		{Sampling{TopP: nan}, "top-p NaN"},
		{Sampling{MinP: -0.5}, "min-p -0.5: must be from 0"},
		{Sampling{RepetitionPenalty: -2}, "repetition penalty -2: must be above 0"},
		{Sampling{RepetitionPenalty: inf}, "repetition penalty +Inf"},
		{Sampling{FrequencyPenalty: 2.5}, "frequency penalty 2.5: must be from -2 to 2"},
		{Sampling{PresencePenalty: nan}, "presence penalty NaN: must be from -2 to 2"},
	} {
		if _, err := NewSampler(c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, expected %q", c.opts, err, c.want)
		}
	}
	f := func(v float64) float32 { return float32(v) }
	for _, c := range []struct {
		opts   Sampling
		logits []float32
		want   string
	}{
		{Sampling{}, nil, "logits: the list is empty"},
		{Sampling{}, []float32{1, f(nan)}, "logits: the logit of token 1 is NaN"},
		{Sampling{Temperature: 1}, []float32{f(inf), 1}, "logits: the logit of token 0 is +Inf"},
		{Sampling{Temperature: 1}, []float32{f(-inf), f(-inf)}, "logits: all are -Inf"},
		{Sampling{RepetitionPenalty: 1e-30}, []float32{1e20, 1}, "logits after the penalties: the logit of token 0 " +
			"is +Inf"},
		{Sampling{Temperature: 1e-38}, []float32{1e20, 1}, "temperature 1e-38: dividing the greatest logit"},
	} {
		s, err := NewSampler(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(c.logits, []int64{0}, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v %v: error %v, expected %q", c.opts, c.logits, err, c.want)
		}
	}
}

func BenchmarkSampling(b *testing.B) {
	logits := make([]float32, 150_000)
	x := uint32(1)
	for i := range logits {
		x = x*1664525 + 1013904223
		logits[i] = float32(x>>8)/(1<<24)*20 - 10
	}
	s, err := NewSampler(Sampling{Temperature: 0.8, TopK: 50, TopP: 0.95, RepetitionPenalty: 1.1})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Next(logits, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
