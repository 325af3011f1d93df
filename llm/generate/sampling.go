package generate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

	// Kept from call to call to reuse the memory.
	scores []float32
	counts map[int64]int
	ids    []int
	probs  []float64
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
	ids, probs, err := s.distribution(logits, best)
	if err != nil {
		return 0, err
	}
	return int64(ids[s.draw(probs)]), nil
}

// likeliest reports whether the token of the greatest logit is always taken, whatever the earlier tokens are.
func (s *Sampling) likeliest() bool { return s.Temperature == 0 && !s.penalises() }

// draw returns an index of probs with a chance proportional to its value. The values need not sum to 1.
func (s *Sampler) draw(probs []float64) int {
	var total float64
	last := 0
	for i, p := range probs {
		total += p
		if p > 0 {
			last = i
		}
	}
	u := float64(s.source.Uint64()>>11) / (1 << 53) * total
	for i, p := range probs {
		if u -= p; u < 0 {
			return i
		}
	}
	return last // u reached total by rounding
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
