package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Step is one step of a comparison of two models on the same tokens.
type Step struct {
	Position int   `json:"position"` // index among the generated tokens
	Want     int64 `json:"want"`     // the first model's choice, or the recorded token
	Got      int64 `json:"got"`      // the other model's choice
	// A margin is the distance of a model's greatest logit from the next one. If the choices differ, it is the distance
	// of the model's own choice from the other choice. WantMargin is missing if only the token is recorded.
	WantMargin *golden.Number `json:"want_margin,omitempty"`
	GotMargin  golden.Number  `json:"got_margin"`
	// KL is the divergence KL(first || other) in nats, MaxAbs the greatest difference of logits. Both are missing if
	// only the token is recorded.
	KL     *golden.Number `json:"kl,omitempty"`
	MaxAbs *golden.Number `json:"max_abs,omitempty"`
	// NearTie reports that the choices differ and every margin is within the limit, so rounding decides.
	NearTie bool `json:"near_tie,omitempty"`
}

// Differs reports whether the choices differ.
func (s *Step) Differs() bool { return s.Want != s.Got }

// Comparison compares two models, or a model and a recording, on one prompt.
type Comparison struct {
	Prompt []int64 `json:"prompt"`
	// IDs are the tokens given to both: the first model's choices, the tokens to follow, or the recorded ones. So the
	// steps after a difference are compared as well.
	IDs     []int64 `json:"ids"`
	Steps   []Step  `json:"steps"`
	NearTie float64 `json:"near_tie_limit"`
	// MeanKL and MaxKL cover the steps that have a divergence.
	MeanKL golden.Number `json:"mean_kl"`
	MaxKL  golden.Number `json:"max_kl"`
	MaxAbs golden.Number `json:"max_abs"`
	// First is the first step at which the choices differ, -1 if they never do. Differing counts the steps that differ,
	// and Ties the differing steps that are near ties.
	First     int  `json:"first_difference"`
	Differing int  `json:"differing"`
	Ties      int  `json:"near_ties"`
	Passed    bool `json:"passed"` // every difference is a near tie

	measured int // steps with a divergence
}

// The default limits for a near tie, in nats: two logits this close may be ordered by rounding. The likelier token is
// then at most 1 % likelier, or 10 % with weights in half precision.
const (
	NearTie     = 0.01
	NearTieHalf = 0.1
)

// TieLimit returns the limit for a comparison of two models. b may be nil.
func TieLimit(a, b *Generator) float64 {
	if a.half || b != nil && b.half {
		return NearTieHalf
	}
	return NearTie
}

func newComparison(prompt []int64, limit float64) *Comparison {
	return &Comparison{Prompt: prompt, First: -1, NearTie: limit, Passed: true, IDs: []int64{}, Steps: []Step{}}
}

// add adds a step, after which the models were given id.
func (c *Comparison) add(s Step, id int64) {
	s.Position = len(c.Steps)
	if s.Differs() {
		within := func(n golden.Number) bool { return float64(n) <= c.NearTie }
		s.NearTie = within(s.GotMargin) && (s.WantMargin == nil || within(*s.WantMargin))
		c.Differing++
		if s.NearTie {
			c.Ties++
		} else {
			c.Passed = false
		}
		if c.First < 0 {
			c.First = s.Position
		}
	}
	if s.KL != nil {
		c.measured++
		c.MeanKL += (*s.KL - c.MeanKL) / golden.Number(c.measured)
		c.MaxKL = max(c.MaxKL, *s.KL)
	}
	if s.MaxAbs != nil {
		c.MaxAbs = max(c.MaxAbs, *s.MaxAbs)
	}
	c.Steps = append(c.Steps, s)
	c.IDs = append(c.IDs, id)
}

// Compare generates greedily with model a and makes model b compute the same tokens, step by step. If follow is set,
// both models are given these tokens instead of a's choices, and end with them. limit is the near-tie limit.
func Compare(ctx context.Context, a, b *Generator, prompt, follow []int64, o Options, limit float64) (*Comparison,
	error) {
	if a.layout.vocabulary > 0 && b.layout.vocabulary > 0 && a.layout.vocabulary != b.layout.vocabulary {
		return nil, fmt.Errorf("%s has a vocabulary of %d, but %s has %d: their tokens cannot be compared",
			a.session.Path(), a.layout.vocabulary, b.session.Path(), b.layout.vocabulary)
	}
	c := newComparison(prompt, limit)
	var want, got []float32
	var chosen, given int64
	o = greedy(o)
	if follow != nil {
		o.MaxTokens, o.StopTokens = len(follow), nil
		for k, id := range follow {
			if id < 0 || a.layout.vocabulary > 0 && id >= a.layout.vocabulary {
				return nil, fmt.Errorf("token %d of --follow has id %d, but the model's ids are 0 to %d", k, id,
					a.layout.vocabulary-1)
			}
		}
	}
	oa, ob := o, o
	oa.Choose = func(_ int, logits []float32) (int64, error) {
		want = append(want[:0], logits...)
		best, err := greatest(logits)
		chosen, given = int64(best), int64(best)
		if follow != nil {
			given = follow[len(c.Steps)]
		}
		return given, err
	}
	ob.Choose = func(_ int, logits []float32) (int64, error) {
		got = logits
		if len(got) != len(want) {
			return 0, fmt.Errorf("it has %d logits, but the first model has %d", len(got), len(want))
		}
		s, err := compareRows(want, got, chosen)
		if err == nil {
			c.add(s, given)
		}
		return given, err
	}
	ra, err := a.Start(oa, prompt)
	if err != nil {
		return nil, err
	}
	rb, err := b.Start(ob, prompt)
	if err != nil {
		return nil, err
	}
	next, stop := iter.Pull2(rb.Tokens(ctx))
	defer stop()
	for _, err := range ra.Tokens(ctx) {
		if err != nil {
			return c, err
		}
		if _, err, ok := next(); err != nil {
			return c, err
		} else if !ok {
			return c, errors.New("the other model stopped before the first one") // its context is smaller
		}
	}
	return c, nil
}

// Recorded is a recorded greedy generation.
type Recorded struct {
	Prompt, IDs []int64
	Gaps        []float64 // margins of the greatest logits, nil if they were not recorded
	Last        []float32 // the logits after the prompt, nil if they were not recorded
}

// CompareRecorded makes the model compute the recorded tokens and compares its choices with them.
func CompareRecorded(ctx context.Context, g *Generator, r Recorded, o Options, limit float64) (*Comparison, error) {
	c := newComparison(r.Prompt, limit)
	if r.Gaps != nil && len(r.Gaps) != len(r.IDs) {
		return nil, fmt.Errorf("the recording has %d gaps for %d tokens", len(r.Gaps), len(r.IDs))
	}
	o = greedy(o)
	o.MaxTokens, o.StopTokens = len(r.IDs), nil
	o.Choose = func(_ int, logits []float32) (int64, error) {
		i := len(c.Steps)
		id := r.IDs[i]
		if id < 0 || id >= int64(len(logits)) {
			return 0, fmt.Errorf("the recorded token %d is %d, but the model has only %d", i, id, len(logits))
		}
		s := Step{}
		if i == 0 && r.Last != nil {
			if len(r.Last) != len(logits) {
				return 0, fmt.Errorf("the recording has %d logits, but the model has %d", len(r.Last), len(logits))
			}
			var err error
			if s, err = compareRows(r.Last, logits, id); err != nil {
				return 0, err
			}
		} else {
			best, err := greatest(logits)
			if err != nil {
				return 0, err
			}
			s.Want, s.Got = id, int64(best)
			s.GotMargin = golden.Number(margin(logits, best, int(id)))
		}
		if r.Gaps != nil {
			gap := golden.Number(r.Gaps[i])
			s.WantMargin = &gap
		}
		c.add(s, id)
		return id, nil
	}
	run, err := g.Start(o, r.Prompt)
	if err != nil {
		return nil, err
	}
	for _, err := range run.Tokens(ctx) {
		if err != nil {
			return c, err
		}
	}
	if len(c.Steps) < len(r.IDs) {
		return c, fmt.Errorf("the recording has %d tokens, but the model has positions for "+
			"%d", len(r.IDs), len(c.Steps))
	}
	return c, nil
}

// greedy keeps only the options that a comparison respects.
func greedy(o Options) Options {
	return Options{MaxTokens: o.MaxTokens, MaxContext: o.MaxContext, StopTokens: o.StopTokens,
		PrefillSize: o.PrefillSize}
}

// compareRows compares the logits of a position at which the first model chose a token.
func compareRows(want, got []float32, chosen int64) (Step, error) {
	s := Step{Want: chosen}
	best, err := greatest(got)
	if err != nil {
		return s, err
	}
	s.Got = int64(best)
	margins := golden.Number(margin(want, int(chosen), best))
	s.WantMargin, s.GotMargin = &margins, golden.Number(margin(got, best, int(chosen)))
	dims := []int64{1, int64(len(want))}
	stats, err := golden.CompareLogits(onnx.NewFloat32s("logits", dims, got), onnx.NewFloat32s("logits", dims, want))
	if err != nil {
		return s, err
	}
	worst := golden.Number(0)
	for i := range want {
		if d := math.Abs(float64(want[i]) - float64(got[i])); want[i] != got[i] {
			worst = max(worst, golden.Number(d))
		}
	}
	s.KL, s.MaxAbs = &stats.MaxKL, &worst
	return s, nil
}

// margin is the distance of a choice's logit from another token's, or from the next one if both are the same token.
func margin(logits []float32, choice, other int) float64 {
	if choice == other {
		return float64(gap(logits))
	}
	return float64(logits[choice]) - float64(logits[other])
}
