package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// limit returns the largest margin at which rounding may decide between two tokens.
func (f *generateFlags) limit(a, b *generate.Generator) float64 {
	if f.tieGiven {
		return f.nearTie
	}
	return generate.TieLimit(a, b)
}

// compareModels runs another model on the tokens that the first one generates.
func (f *generateFlags) compareModels(ctx context.Context, a *app, g *opened, texts *texts) error {
	other, err := f.open(a, f.compare)
	if err != nil {
		return err
	}
	defer other.Close()
	var follow []int64
	if f.follow != "" {
		if follow, err = parseIDs("follow", f.follow); err != nil {
			return err
		}
	}
	var all []*generate.Comparison
	for _, ids := range texts.ids {
		c, err := generate.Compare(ctx, g.Generator, other.Generator, ids, follow, f.options(texts),
			f.limit(g.Generator, other.Generator))
		if err != nil {
			return ended(ctx, err)
		}
		if f.klGiven {
			c.Passed = float64(c.MaxKL) <= f.maxKL
		}
		all = append(all, c)
	}
	return f.reportComparison(a, texts, other.path+" against "+g.path, g, all,
		generateComparison{Model: g.path, Compared: other.path})
}

// compareRecorded compares the model with recorded generations.
func (f *generateFlags) compareRecorded(ctx context.Context, a *app, g *opened, texts *texts) error {
	recorded, err := readRecorded(f.golden)
	if err != nil {
		return err
	}
	var all []*generate.Comparison
	for _, r := range recorded {
		texts.ids = append(texts.ids, r.Prompt)
		c, err := generate.CompareRecorded(ctx, g.Generator, r, f.options(texts), f.limit(g.Generator, nil))
		if err != nil {
			return ended(ctx, err)
		}
		all = append(all, c)
	}
	return f.reportComparison(a, texts, g.path+" against "+f.golden, g, all,
		generateComparison{Model: g.path, Golden: f.golden})
}

// readRecorded reads promptN, greedyN, top2gapN and logits_lastN for N from 0.
func readRecorded(path string) ([]generate.Recorded, error) {
	cases, err := golden.Load(path, nil)
	if err != nil {
		return nil, err
	}
	var list []generate.Recorded
	for len(cases) > 0 {
		n := strconv.Itoa(len(list))
		prompt, ids := cases[0].Input("prompt"+n), cases[0].Input("greedy"+n)
		if prompt == nil || ids == nil {
			break
		}
		var r generate.Recorded
		var last []float64
		var errs [4]error
		r.Prompt, errs[0] = golden.Int64s(prompt)
		r.IDs, errs[1] = golden.Int64s(ids)
		if t := cases[0].Input("top2gap" + n); t != nil {
			r.Gaps, errs[2] = golden.Float64s(t)
		}
		if t := cases[0].Input("logits_last" + n); t != nil {
			last, errs[3] = golden.Float64s(t)
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, x := range last {
			r.Last = append(r.Last, float32(x))
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s does not hold a recorded generation: it needs arrays prompt0 and greedy0 of token "+
			"ids", path)
	}
	return list, nil
}

func (f *generateFlags) reportComparison(a *app, texts *texts, what string, g *opened, all []*generate.Comparison,
	result generateComparison) error {
	passed := true
	a.say("%s, in %s", what, g.what)
	t := newTable(">prompt", ">tokens", ">same", ">near ties", ">mean KL", ">max KL", ">max abs", "")
	for i, c := range all {
		passed = passed && c.Passed
		mean, kl, abs := "–", "–", "–"
		if len(c.Steps) > 0 && c.Steps[0].KL != nil {
			mean, kl, abs = fmt.Sprintf("%.3g", c.MeanKL), fmt.Sprintf("%.3g", c.MaxKL), fmt.Sprintf("%.3g", c.MaxAbs)
		}
		t.add(i, len(c.Steps), len(c.Steps)-c.Differing, c.Ties, mean, kl, abs, a.verdict(c.Passed, "passed"))
	}
	t.write(a.human())
	for i, c := range all {
		for _, s := range c.Steps {
			if s.Differs() || a.verbose {
				a.say("prompt %d: %s", i, texts.step(&s, c.NearTie))
			}
		}
	}
	result.Schema, result.Passed, result.Backend, result.Prompts = jsonSchema, passed, g.what, all
	if err := a.result(result); err != nil {
		return err
	}
	if !passed {
		return &exitError{code: exitFailed}
	}
	return nil
}

// step describes a step in one line.
func (t *texts) step(s *generate.Step, limit float64) string {
	line := fmt.Sprintf("token %d is %s", s.Position, t.name(s.Want))
	if s.WantMargin != nil {
		line += fmt.Sprintf(" (margin %.3g)", *s.WantMargin)
	}
	if s.Differs() {
		line += fmt.Sprintf(", here %s", t.name(s.Got))
	} else {
		line += " here too"
	}
	line += fmt.Sprintf(" (margin %.3g)", s.GotMargin)
	if s.KL != nil {
		line += fmt.Sprintf(", KL %.3g, max abs %.3g", *s.KL, *s.MaxAbs)
	}
	if s.NearTie {
		line += fmt.Sprintf(": a near tie (rounding may decide margins up to %g)", limit)
	}
	return line
}

func (t *texts) name(id int64) string {
	if t.tokenizer == nil {
		return strconv.FormatInt(id, 10)
	}
	return fmt.Sprintf("%d %q", id, t.tokenizer.Decode([]int64{id}, false))
}
