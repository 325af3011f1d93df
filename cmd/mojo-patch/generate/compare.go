package generate

import (
	"context"
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prompts"
	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// limit returns the largest margin at which rounding may decide between two tokens.
func (f *options) limit(a, b *generate.Generator) float64 {
	if f.tieGiven {
		return f.nearTie
	}
	return generate.TieLimit(a, b)
}

// compareModels runs another model on the tokens that the first one generates.
func (f *options) compareModels(ctx context.Context, a *cli.App, g *opened, texts *prompts.Texts) error {
	other, err := f.open(a, f.compare)
	if err != nil {
		return err
	}
	defer other.Close()
	var follow []int64
	if f.follow != "" {
		if follow, err = prompts.ParseIDs("follow", f.follow); err != nil {
			return err
		}
	}
	var all []*generate.Comparison
	for _, ids := range texts.IDs {
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
		Comparison{Model: g.path, Compared: other.path})
}

// compareRecorded compares the model with recorded generations.
func (f *options) compareRecorded(ctx context.Context, a *cli.App, g *opened, texts *prompts.Texts) error {
	recorded, err := feeds.ReadRecorded(f.Golden)
	if err != nil {
		return err
	}
	var all []*generate.Comparison
	for _, r := range recorded {
		texts.IDs = append(texts.IDs, r.Prompt)
		c, err := generate.CompareRecorded(ctx, g.Generator, r, f.options(texts), f.limit(g.Generator, nil))
		if err != nil {
			return ended(ctx, err)
		}
		all = append(all, c)
	}
	return f.reportComparison(a, texts, g.path+" against "+f.Golden, g, all,
		Comparison{Model: g.path, Golden: f.Golden})
}

func (f *options) reportComparison(a *cli.App, texts *prompts.Texts, what string, g *opened, all []*generate.Comparison,
	result Comparison) error {
	passed := true
	a.Say("%s, in %s", what, g.what)
	t := cli.NewTable(">prompt", ">tokens", ">same", ">near ties", ">mean KL", ">max KL", ">max abs", "")
	for i, c := range all {
		passed = passed && c.Passed
		mean, kl, abs := "–", "–", "–"
		if len(c.Steps) > 0 && c.Steps[0].KL != nil {
			mean, kl, abs = fmt.Sprintf("%.3g", c.MeanKL), fmt.Sprintf("%.3g", c.MaxKL), fmt.Sprintf("%.3g", c.MaxAbs)
		}
		t.Add(i, len(c.Steps), len(c.Steps)-c.Differing, c.Ties, mean, kl, abs, a.Verdict(c.Passed, "passed"))
	}
	t.Write(a.Human())
	for i, c := range all {
		for _, s := range c.Steps {
			if s.Differs() || a.Verbose {
				a.Say("prompt %d: %s", i, texts.Step(&s, c.NearTie))
			}
		}
	}
	result.Schema, result.Passed, result.Backend, result.Prompts = cli.JSONSchema, passed, g.what, all
	if err := a.Result(result); err != nil {
		return err
	}
	if !passed {
		return cli.Failed(nil)
	}
	return nil
}

// Comparison is the result of generate with --compare or --golden.
type Comparison struct {
	Schema   int                    `json:"schema"`
	Model    string                 `json:"model"`
	Compared string                 `json:"compared,omitempty"` // the model that it is compared with
	Golden   string                 `json:"golden,omitempty"`   // or the recording
	Backend  string                 `json:"backend"`
	Passed   bool                   `json:"passed"`
	Prompts  []*generate.Comparison `json:"prompts"`
}
