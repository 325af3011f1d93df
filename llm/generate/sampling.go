package generate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Sampling says how the next token is chosen from the logits. The zero value is greedy decoding without penalties.
//
// The logits pass through these steps, in this order, each left out where its option has no effect:
//
//	repetition penalty   l/r where l >= 0, l·r where l < 0, for each token of prompt and generated
//	frequency penalty    l - f·(times the token was generated)
//	presence penalty     l - p, for each token that was generated
//	temperature          l/t
//	top-k                those below the k-th greatest go: ties with it stay, so that more than k can be left
//	top-p                the least likely go, whose probabilities together are at most 1-p
//	min-p                those go whose probability is below m·(greatest probability)
//
// The penalties apply to greedy decoding too, the rest to sampling alone. At least one token is always left. Order and
// formulas are those of transformers' generate with do_sample (RepetitionPenaltyLogitsProcessor,
// TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper); the frequency and presence penalties,
// which it lacks, are those of the OpenAI API at the place where vLLM has them.
type Sampling struct {
	// Temperature divides the logits. 0 is greedy: the greatest logit, of equal ones that of the lowest id.
	Temperature float64
	// TopK keeps the TopK most likely tokens. 0 keeps all.
	TopK int
	// TopP keeps the most likely tokens until their probabilities reach TopP, in (0, 1]. 0 and 1 keep all.
	TopP float64
	// MinP keeps the tokens at least MinP times as likely as the most likely one, in [0, 1]. 0 keeps all.
	MinP float64
	// RepetitionPenalty, above 0, makes tokens of the prompt and generated ones less likely where it is above 1.
	// 0 and 1 have no effect.
	RepetitionPenalty float64
	// FrequencyPenalty, in [-2, 2], is subtracted once for each time a token was generated.
	FrequencyPenalty float64
	// PresencePenalty, in [-2, 2], is subtracted once if a token was generated.
	PresencePenalty float64
	// Seed starts the random numbers: equal seeds, logits and options give equal tokens, on every platform. The numbers
	// are not PyTorch's: the same seed draws other tokens there, of the same distribution.
	Seed uint64
}

// Validate names the first option that is out of its range.
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
			"above 0 (1: none)"},
		{"frequency penalty", s.FrequencyPenalty, math.Abs(s.FrequencyPenalty) <= 2, "from -2 to 2"},
		{"presence penalty", s.PresencePenalty, math.Abs(s.PresencePenalty) <= 2, "from -2 to 2"},
	} {
		if !o.ok || math.IsInf(float64(float32(o.value)), 0) {
			return fmt.Errorf("%s %v: must be %s", o.name, o.value, o.want)
		}
	}
	return nil
}

// A Sampler chooses tokens of one sequence. It is not for concurrent use: each sequence has its own.
type Sampler struct {
	opts   Sampling
	source *rand.PCG

	// Kept from call to call, for their memory.
	scores []float32
	counts map[int64]int
	ids    []int
	probs  []float64
}

// NewSampler returns a sampler; the error is that of Sampling.Validate.
func NewSampler(opts Sampling) (*Sampler, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{opts: opts, source: rand.NewPCG(opts.Seed, 0), counts: map[int64]int{}}, nil
}

// Next chooses the id of the next token from the logits of the last position, one for each id. prompt and generated are
// the ids so far, which the penalties look at; ids that have no logit are passed over. logits are left as they are.
//
// NaN or +Inf among the logits is an error, as are logits that are all -Inf: there is nothing to choose by. -Inf is a
// token that is never chosen.
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

// likeliest reports whether the token of the greatest logit is taken, whatever tokens are there.
func (s *Sampling) likeliest() bool { return s.Temperature == 0 && !s.penalises() }

// draw returns an index of probs, each as likely as its value says; they need not add up to 1.
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
		return 0, errors.New("there are none")
	}
	best := 0
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, fmt.Errorf("that of token %d is %v", i, l)
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
