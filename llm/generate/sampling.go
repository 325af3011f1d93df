package generate

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/sample"
)

// Sampling controls how the next token is chosen from the logits. The zero value is greedy decoding without penalties.
//
// The logits pass through these steps in this order. A step whose option has no effect is skipped:
//
//	repetition penalty   l/r if l >= 0, l·r if l < 0, for each token of prompt and generated
//	frequency penalty    l - f·(times the token was generated)
//	presence penalty     l - p, for each token that was generated
//	temperature          l/t
//	top-k                drops logits below the k-th greatest; ties with it stay, so more than k can remain
//	top-p                drops the least likely tokens whose probabilities together are at most 1-p
//	min-p                drops tokens whose probability is below m·(greatest probability)
//
// Greedy decoding applies only the penalties. At least one token always remains. Order and formulas follow
// transformers' generate with do_sample (RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper,
// TopPLogitsWarper, MinPLogitsWarper). transformers has no frequency and presence penalties: these follow the OpenAI
// API and are applied in vLLM's order.
type Sampling struct {
	// Temperature divides the logits. 0 is greedy: it takes the greatest logit, with the lowest id among equal ones.
	Temperature float64
	// TopK keeps the TopK most likely tokens. 0 keeps all.
	TopK int
	// TopP keeps the most likely tokens until their probabilities reach TopP, in (0, 1]. 0 and 1 keep all.
	TopP float64
	// MinP keeps the tokens at least MinP times as likely as the most likely one, in [0, 1]. 0 keeps all.
	MinP float64
	// RepetitionPenalty, above 0, makes tokens of the prompt and generated tokens less likely if it is above 1. 0 and 1
	// have no effect.
	RepetitionPenalty float64
	// FrequencyPenalty, in [-2, 2], is subtracted once for each time a token was generated.
	FrequencyPenalty float64
	// PresencePenalty, in [-2, 2], is subtracted once if a token was generated.
	PresencePenalty float64
	// Seed starts the random numbers: equal seeds, logits and options return equal tokens on every platform. The random
	// numbers are not PyTorch's: the same seed draws other tokens there, from the same distribution.
	Seed uint64
}

// Validate returns an error that names the first option out of its range.
func (s Sampling) Validate() error {
	for _, o := range []struct {
		name  string
		value float64
		ok    bool
		want  string
	}{
		{"temperature", s.Temperature, s.Temperature >= 0 && (s.Temperature == 0 || float32(s.Temperature) > 0),
			"0 (greedy) or above"},
		{"top-k", float64(s.TopK), s.TopK >= 0, "0 (all tokens) or above"},
		{"top-p", s.TopP, s.TopP >= 0 && s.TopP <= 1, "from 0 to 1 (0 and 1: all tokens)"},
		{"min-p", s.MinP, s.MinP >= 0 && s.MinP <= 1, "from 0 (all tokens) to 1"},
		{"repetition penalty", s.RepetitionPenalty,
			s.RepetitionPenalty == 0 || s.RepetitionPenalty > 0 && float32(s.RepetitionPenalty) > 0,
			"above 0 (1: no penalty)"},
		{"frequency penalty", s.FrequencyPenalty, math.Abs(s.FrequencyPenalty) <= 2, "from -2 to 2"},
		{"presence penalty", s.PresencePenalty, math.Abs(s.PresencePenalty) <= 2, "from -2 to 2"},
	} {
		if !o.ok || math.IsInf(float64(float32(o.value)), 0) {
			return fmt.Errorf("%s %v: must be %s", o.name, o.value, o.want)
		}
	}
	return nil
}

// A Sampler chooses the tokens of one sequence. It must not be used concurrently: each sequence has its own.
type Sampler struct {
	opts   Sampling
	source *rand.PCG
	early  []int64 // random numbers that ahead has shown

	// Kept from call to call to reuse the memory.
	scores []float32
	counts map[int64]int
	tokens []token
	heap   likeliest
}

// NewSampler returns a sampler, or the error of Sampling.Validate.
func NewSampler(opts Sampling) (*Sampler, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{opts: opts, source: rand.NewPCG(opts.Seed, 0), counts: map[int64]int{}}, nil
}

// Next chooses the id of the next token from the logits of the last position, one per id. The penalties read prompt and
// generated, the ids so far, and skip ids that have no logit. Next does not change logits.
//
// It returns an error if a logit is NaN or +Inf, or if all are -Inf. A token with -Inf is never chosen.
func (s *Sampler) Next(logits []float32, prompt, generated []int64) (int64, error) {
	best, err := greatest(logits)
	if err != nil {
		return 0, fmt.Errorf("logits: %w", err)
	}
	if s.opts.penalises() {
		logits = s.penalised(logits, prompt, generated)
		if best, err = greatest(logits); err != nil {
			return 0, fmt.Errorf("logits after the penalties: %w", err)
		}
	}
	if s.opts.Temperature == 0 {
		return int64(best), nil
	}
	tokens, err := s.distribution(logits, best)
	if err != nil {
		return 0, err
	}
	return int64(draw(tokens, s.random())), nil
}

// likeliest reports whether the token of the greatest logit is always taken, whatever the earlier tokens are.
func (s *Sampling) likeliest() bool { return s.Temperature == 0 && !s.penalises() }

// ahead returns the random number, below sample.Randoms, that comes after n others.
func (s *Sampler) ahead(n int) int64 {
	for len(s.early) <= n {
		s.early = append(s.early, int64(s.source.Uint64()>>11))
	}
	return s.early[n]
}

// random takes the next random number.
func (s *Sampler) random() int64 {
	r := s.ahead(0)
	s.early = s.early[1:]
	return r
}

// draw returns the id of a token with a chance proportional to its weight: the first at which the sum of the weights
// exceeds the share that the random number is of sample.Randoms.
func draw(tokens []token, random int64) int {
	var total int64
	for _, t := range tokens {
		total += t.weight
	}
	left := min(int64(float64(random)/sample.Randoms*float64(total)), total-1)
	for _, t := range tokens {
		if left -= t.weight; left < 0 {
			return t.id
		}
	}
	panic("draw: no token has a weight") // the likeliest has
}

// greatest returns the first index of the greatest logit.
func greatest(logits []float32) (int, error) {
	if len(logits) == 0 {
		return 0, errors.New("the list is empty")
	}
	best := 0
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, fmt.Errorf("the logit of token %d is %v", i, l)
		}
		if l > logits[best] {
			best = i
		}
	}
	if math.IsInf(float64(logits[best]), -1) {
		return 0, errors.New("all are -Inf")
	}
	return best, nil
}

func (o *Sampling) penalises() bool {
	return o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0
}

// penalised applies the penalties to a copy of logits, in float32 as transformers does.
func (s *Sampler) penalised(logits []float32, prompt, generated []int64) []float32 {
	s.scores = append(s.scores[:0], logits...)
	scores := s.scores
	if r := float32(s.opts.RepetitionPenalty); r != 0 && r != 1 {
		clear(s.counts)
		for _, ids := range [][]int64{prompt, generated} {
			for _, id := range ids {
				s.counts[id] = 1
			}
		}
		for id := range s.counts {
			switch {
			case id < 0 || id >= int64(len(scores)):
			case scores[id] < 0:
				scores[id] *= r
			default:
				scores[id] /= r
			}
		}
	}
	f, p := float32(s.opts.FrequencyPenalty), float32(s.opts.PresencePenalty)
	if f == 0 && p == 0 {
		return scores
	}
	clear(s.counts)
	for _, id := range generated {
		s.counts[id]++
	}
	for id, n := range s.counts {
		if id >= 0 && id < int64(len(scores)) {
			scores[id] -= float32(f * float32(n)) // rounded before it is subtracted
			scores[id] -= p
		}
	}
	return scores
}

// token is one that may be drawn.
type token struct {
	logit  float32
	id     int
	weight int64 // the probability is a multiple of it; see sample.Weight
}

// before orders tokens by descending logits, equal ones by ascending ids.
func (t token) before(u token) bool { return t.logit > u.logit || t.logit == u.logit && t.id < u.id }

// distribution returns the tokens that remain after temperature, top-k, top-p and min-p, by ascending ids. best is the
// index of the greatest logit. The op Sample computes the same; its definition has the formulas.
func (s *Sampler) distribution(logits []float32, best int) ([]token, error) {
	t := float32(s.opts.Temperature)
	if math.IsInf(float64(logits[best]/t), 0) {
		return nil, fmt.Errorf("temperature %v: dividing the greatest logit, %v, by it overflows; use 0 for greedy",
			s.opts.Temperature, logits[best])
	}
	least := float32(math.Inf(-1))
	if k := s.opts.TopK; k > 0 && k < len(logits) {
		least = kth(logits, k)
	}
	s.tokens = s.tokens[:0]
	var total int64
	top := float64(logits[best] / t)
	for id, l := range logits {
		if l < least || math.IsInf(float64(l), -1) {
			continue
		}
		w := sample.Weight(float64(l/t) - top)
		s.tokens = append(s.tokens, token{l, id, w})
		total += w
	}
	list := s.tokens
	if p := float64(float32(s.opts.TopP)); p > 0 && p < 1 {
		last := s.topP(int64(math.Ceil(p * float64(total))))
		list = slices.DeleteFunc(list, last.before)
	}
	if m := float64(float32(s.opts.MinP)); m > 0 {
		least := int64(math.Ceil(m * sample.One))
		list = slices.DeleteFunc(list, func(t token) bool { return t.weight < least })
	}
	return list, nil
}

// kth returns the k-th greatest value, 0 < k <= len(values). It keeps a heap of the k greatest values so far with the
// least on top, so that most values cost one comparison.
func kth(values []float32, k int) float32 {
	h := slices.Clone(values[:k])
	for i := k/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
	for _, v := range values[k:] {
		if v > h[0] {
			h[0] = v
			sink(h, 0)
		}
	}
	return h[0]
}

func sink(h []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// topP returns the last of the likeliest tokens that reach mass together. It pops them off a heap, so that the many
// unlikely ones are never sorted.
func (s *Sampler) topP(mass int64) token {
	s.heap = append(s.heap[:0], s.tokens...)
	heap.Init(&s.heap)
	for {
		last := s.heap[0]
		if mass -= last.weight; mass <= 0 || len(s.heap) == 1 {
			return last
		}
		heap.Pop(&s.heap)
	}
}

// likeliest is a heap with the likeliest token on top, and the lowest id among equal ones.
type likeliest []token

func (h likeliest) Len() int { return len(h) }

func (h likeliest) Less(i, j int) bool { return h[i].before(h[j]) }

func (h likeliest) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is never called.
func (h likeliest) Push(any) { panic("likeliest: only taken from") }

func (h *likeliest) Pop() any {
	*h = (*h)[:len(*h)-1]
	return nil
}
