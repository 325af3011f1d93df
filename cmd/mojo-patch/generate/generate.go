// Package generate is the command generate.
package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prompts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/spf13/cobra"
)

// New returns the command generate.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "generate MODEL [KEY=VALUE...]",
		Short: "Generate text with a language model in onnxruntime",
		Long: `generate runs a decoder on one or more prompts and prints the generated text as it goes; several
prompts run together. It feeds the model by the names and shapes of its inputs: token ids, masks,
positions, and a cache of any layout, which stays on the device from step to step. A model without a
cache gets the whole text again for each token. Original and patched models run alike.

Without --temperature, --top-k, --top-p and --min-p generate chooses the likeliest token (greedy); each
of the last three implies --temperature 1. A text ends at a stop token, before a --stop text, after
--max-tokens, or when the model has no position left. The stop tokens are --stop-token and those in
generation_config.json and config.json beside the model or the tokenizer. In a chat, or if these files
name no stop token, the one in tokenizer_config.json is added. Prompts of different lengths run together
if padding before them leaves the logits unchanged, which generate tries once; otherwise they run one
after another. A model of apply --cache paged runs prompts of any lengths together without padding, and
computes a common start of prompts once.

With --speculate ngram a step also tries the tokens that followed an earlier occurrence of the last
ones, and keeps them as far as the model chooses them: text that repeats itself takes fewer steps. With
--draft a smaller model chooses the tokens to try. The model must return the logits of each token, and
neither may have recurrent states. Prompts then run one after another, except with a paged model.

With --compare OTHER the first model generates greedily and the second model computes the same steps.
generate reports the steps at which its choice differs, with the margins (how far each model's choice
is above the other's, in logits), the KL divergence and the greatest difference of each step. --follow
feeds both models the given tokens instead of the first model's choices. With --max-kl the divergence
decides instead of the tokens: use it for a model whose weights or activations were rounded.

--golden FILE compares with a recorded generation: an .npz file with promptN and greedyN (ids), and
optionally top2gapN (margins) and logits_lastN (logits after the prompt). A difference with margins
within --near-tie comes from rounding, and is shown as such; any other exits with 1.

` + session.RanksHelp + "\n\n" + session.ProvidersHelp,
		Example: `  mojo-patch generate model.onnx --tokenizer tokenizer.json --prompt "Once upon a time" --max-tokens 64
  mojo-patch generate model.onnx --chat --system "Answer in one line." --prompt "Why is the sky blue?" --temperature 0.7 --top-p 0.9
  mojo-patch generate patched.onnx --tokenizer FOLDER --prompt-file question.txt --stop "\n\n" --json
  mojo-patch generate model.onnx --ids 1,2,3 --max-tokens 8
  mojo-patch generate model.onnx --tokenizer FOLDER --prompt "Hello" --compare patched.onnx
  mojo-patch generate patched.onnx --tokenizer FOLDER --prompt "Hello" --draft small.onnx
  mojo-patch generate patched.onnx --golden golden.npz`,
		Args:              f.backend.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			args = f.backend.Take(args, 1)
			models, err := f.backend.Ranks(a, c, append(args, f.compare, f.draft))
			if err != nil {
				return err
			}
			if f.compare, f.draft = models[1], models[2]; slices.Contains(f.Prompts, "-") {
				err = f.backend.RejectRanked(true, "--prompt -", "not every rank gets stdin (use --prompt-file)")
			}
			if err != nil {
				return err
			}
			if err := f.check(c); err != nil {
				return err
			}
			return f.run(a, models[0])
		},
	}
	f.flags(c)
	cli.Headings(c, "prompt chat tokenizer max-tokens temperature top-p provider threads compare json",
		"Prompts: prompt-file ids system template",
		"Sampling: top-k min-p repetition-penalty frequency-penalty presence-penalty seed",
		"Ends: stop stop-token ignore-eos max-context", "Comparisons: follow golden max-kl near-tie margins",
		"Runtime: backend cuda-graph prefill-chunk speculate draft provider-option provider-library provider-device "+
			"provider-only kernels optimize products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "generate", "generate-compare")
	return c
}

// opened is a model that generates.
type opened struct {
	*generate.Generator
	session *ort.Session
	path    string
	what    string // the runtime
	took    time.Duration
}

// Close closes the session.
func (o *opened) Close() error { return o.session.Close() }

// open opens a model with the runtime that the flags select.
func (f *options) open(a *cli.App, path string) (*opened, error) {
	lib, err := ort.Find(f.backend.Onnxruntime)
	if err != nil {
		return nil, err
	}
	m, err := a.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := generate.Check(m); err != nil {
		return nil, err
	}
	start := time.Now()
	session, what, err := f.session(a, m, lib)
	if err != nil {
		return nil, err
	}
	g, err := generate.New(m, session)
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return &opened{g, session, path, what, time.Since(start)}, nil
}

// session opens a session that records a decode step as a CUDA graph, if the flags and the model allow it.
func (f *options) session(a *cli.App, m *onnx.Model, lib ort.Library) (*ort.Session, string, error) {
	b := f.backend
	b.OpenModel = generate.OpenSession
	if !f.graph {
		return b.Session(a, m, lib)
	}
	err := generate.CheckSteady(m)
	if err == nil {
		b.CUDA = map[string]string{"enable_cuda_graph": "1"}
		var session *ort.Session
		var what string
		if session, what, err = b.Session(a, m, lib); err == nil || !strings.Contains(err.Error(), "graph capture") {
			return session, what, err
		}
	}
	err = fmt.Errorf("cannot record a decode step of %s as a CUDA graph: %w", m.Path, err)
	if f.graphGiven {
		return nil, "", cli.Failed(err)
	}
	a.Detail("%v", err)
	b.CUDA = nil
	return b.Session(a, m, lib)
}

func (f *options) run(a *cli.App, path string) error {
	texts, err := f.Texts(path)
	if err != nil {
		return err
	}
	g, err := f.open(a, path)
	if err != nil {
		return err
	}
	defer g.Close()
	warnOther(texts, a, g)
	ctx, stop := cli.Interruptible()
	defer stop()
	switch {
	case f.Golden != "":
		return f.compareRecorded(ctx, a, g, texts)
	case f.compare != "":
		return f.compareModels(ctx, a, g, texts)
	}
	return f.generate(ctx, a, g, texts)
}

// generate generates without a comparison.
func (f *options) generate(ctx context.Context, a *cli.App, g *opened, texts *prompts.Texts) error {
	o := f.options(texts)
	if f.draft != "" {
		draft, err := f.open(a, f.draft)
		if err != nil {
			return err
		}
		defer draft.Close()
		o.Draft = draft.Generator
	}
	run, err := g.Start(o, texts.IDs...)
	if err != nil {
		return err
	}
	a.Detail("%s in %s, opened in %.0f ms", g.path, g.what, float64(g.took.Microseconds())/1e3)
	p := &printer{a: a, texts: texts, run: run}
	for token, e := range run.Tokens(ctx) {
		if e != nil {
			err = e
			break
		}
		if err = p.token(token); err != nil {
			break
		}
	}
	p.end()
	if e := f.report(a, g, texts, run); e != nil {
		return e
	}
	return ended(ctx, err)
}

// ended wraps the error of a generation with its exit code, which is the signal's if a signal ended the generation.
func ended(ctx context.Context, err error) error {
	var by cli.Interrupt
	switch {
	case err == nil:
		return nil
	case errors.As(context.Cause(ctx), &by):
		return cli.ExitWith(cli.SignalCode(by.Signal), fmt.Errorf("%w: the text generated until then is complete", by))
	}
	return cli.Failed(err)
}
