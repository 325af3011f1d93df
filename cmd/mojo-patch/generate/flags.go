package generate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prompts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/spf13/cobra"
)

// mostAdvance is the most tokens that a step tries in advance, unless --speculate has a number.
const mostAdvance = 8

type options struct {
	backend session.Backend

	prompts.PromptFlags

	sampling   generate.Sampling
	maxTokens  int
	maxContext int
	prefill    int
	speculate  string
	advance    int    // the tokens of speculate or draft
	draft      string // the model that chooses them
	margins    bool
	graph      bool // record a decode step as a CUDA graph
	graphGiven bool

	compare  string
	maxKL    float64
	klGiven  bool
	follow   string
	nearTie  float64
	tieGiven bool
}

func (f *options) flags(c *cobra.Command) {
	f.backend.AddTo(c)
	n := c.Flags()
	n.StringVar(&f.Tokenizer, "tokenizer", "", "tokenizer.json, or the folder with it (default: the model's folder)")
	cli.CompleteFile(c, "tokenizer", "json")
	n.StringArrayVar(&f.Prompts, "prompt", nil, `prompt to continue, "-" reads it from stdin; repeatable`)
	n.StringVar(&f.PromptFile, "prompt-file", "", "file with a prompt")
	n.StringArrayVar(&f.IDs, "ids", nil,
		"prompt as token ids separated by commas, without a tokenizer; repeatable")
	n.BoolVar(&f.Chat, "chat", false, "put each prompt into the model's chat template as the user's message")
	n.StringVar(&f.Template, "template", "", "file with the chat template (default: from the tokenizer's folder)")
	n.StringVar(&f.System, "system", "", "system message of the chat")
	n.IntVarP(&f.maxTokens, "max-tokens", "n", 256,
		"most tokens to generate for each prompt; 0 sets no limit")
	n.IntVar(&f.maxContext, "max-context", 0,
		"most tokens of a prompt and its text (default: from config.json or the model's tables)")
	n.Float64Var(&f.sampling.Temperature, "temperature", 0, "sample from logits divided by this number; 0 is greedy")
	n.IntVar(&f.sampling.TopK, "top-k", 0, "sample from this many of the likeliest tokens; 0 for all tokens")
	n.Float64Var(&f.sampling.TopP, "top-p", 0,
		"sample from the likeliest tokens with this total probability; 0 for all tokens")
	n.Float64Var(&f.sampling.MinP, "min-p", 0,
		"sample from the tokens at least this many times as likely as the likeliest one")
	n.Float64Var(&f.sampling.RepetitionPenalty, "repetition-penalty", 0,
		"above 1: make tokens that are already in the text less likely; 0 and 1 have no effect")
	n.Float64Var(&f.sampling.FrequencyPenalty, "frequency-penalty", 0,
		"subtract this from a logit each time that its token was generated, -2 to 2")
	n.Float64Var(&f.sampling.PresencePenalty, "presence-penalty", 0,
		"subtract this once from the logits of all generated tokens, -2 to 2")
	n.Uint64Var(&f.sampling.Seed, "seed", 1, "seed of sampling")
	n.StringArrayVar(&f.Stops, "stop", nil,
		`text that ends the generation and is cut off; \n is a line break; repeatable`)
	n.StringArrayVar(&f.StopTokens, "stop-token", nil, "id or text of a token that ends the generation; repeatable")
	n.BoolVar(&f.IgnoreEOS, "ignore-eos", false, "do not stop at the end tokens of the model's configuration")
	n.IntVar(&f.prefill, "prefill-chunk", 0,
		"most prompt tokens per run, of all prompts if the model is paged; 0 runs the whole prompt at once, or 512 "+
			"tokens if the model is paged")
	n.StringVar(&f.speculate, "speculate", "",
		"ngram, ngram=N: try up to 8 or N tokens in one step, those that followed the last 2 or 3 tokens earlier in "+
			"the text; it generates the same tokens")
	n.StringVar(&f.draft, "draft", "",
		"smaller model with the same tokenizer, whose next 2 to 8 tokens a step tries at once; it generates the same "+
			"tokens")
	cli.CompleteFile(c, "draft", "onnx")
	n.BoolVar(&f.graph, "cuda-graph", false,
		"record a decode step as a CUDA graph and replay it (default: with --provider cuda, for a model of apply "+
			"--cache static --past-length)")
	n.BoolVar(&f.margins, "margins", false, "report for each token the margin of its logit over the "+
		"next likeliest")
	n.StringVar(&f.compare, "compare", "", "another model, whose choices are compared with the first model's")
	cli.CompleteFile(c, "compare", "onnx")
	n.StringVar(&f.follow, "follow", "",
		"token ids to feed to both models instead of the first model's choices")
	n.Float64Var(&f.maxKL, "max-kl", 0,
		"fail if the KL divergence of a step is greater, in nats, instead of if a token differs")
	n.StringVar(&f.Golden, "golden", "", "recorded greedy generations to compare with, .npz")
	cli.CompleteFile(c, "golden", "npz")
	n.Float64Var(&f.nearTie, "near-tie", generate.NearTie,
		fmt.Sprintf("largest margin that counts as decided by rounding, in logits (default for half precision: %g)",
			generate.NearTieHalf))
	cli.Rules(c, "margins requires json", "follow max-kl requires compare", "near-tie requires compare golden",
		"template system requires chat", "follow excludes max-tokens: --follow sets the number of tokens",
		"compare golden excludes temperature top-k top-p min-p repetition-penalty frequency-penalty "+
			"presence-penalty seed stop margins: a comparison follows the likeliest tokens",
		"golden excludes compare prompt prompt-file ids chat max-tokens stop-token ignore-eos: "+
			"--golden sets the prompts and tokens",
		"ids excludes prompt prompt-file chat: --ids is the prompt",
		"speculate draft excludes compare golden cuda-graph: they run a step for each token",
		"draft excludes speculate: the draft model chooses the tokens in advance")
}

func (f *options) check(c *cobra.Command) error {
	if err := f.backend.Check(c); err != nil {
		return err
	}
	if f.backend.Evaluator {
		return errors.New("generate runs models only in onnxruntime, not in the built-in evaluator")
	}
	f.backend.Fallback, f.backend.RuntimeOnly = false, true
	changed := c.Flags().Changed
	cuda := f.backend.Provider == session.ProviderCUDA
	if f.graphGiven = changed("cuda-graph"); f.graph && !cuda {
		return errors.New("--cuda-graph requires --provider cuda")
	}
	f.graph = f.graph || cuda && !f.graphGiven
	sampled := changed("top-k") || changed("top-p") || changed("min-p")
	if sampled && !changed("temperature") {
		f.sampling.Temperature = 1
	}
	if err := f.sampling.Validate(); err != nil {
		return err
	}
	for _, x := range []struct {
		flag string
		v    int
	}{{"max-tokens", f.maxTokens}, {"max-context", f.maxContext}, {"prefill-chunk", f.prefill}} {
		if x.v < 0 {
			return fmt.Errorf("--%s %d: must be 0 or more", x.flag, x.v)
		}
	}
	if f.speculate != "" {
		form, number, given := strings.Cut(f.speculate, "=")
		f.advance = mostAdvance
		var err error
		if given {
			f.advance, err = strconv.Atoi(number)
		}
		if err != nil || form != "ngram" || f.advance < 1 {
			return fmt.Errorf("--speculate %q: write ngram, or ngram=N with N from 1 on", f.speculate)
		}
		f.graph = false
	}
	if f.draft != "" {
		f.advance, f.graph = mostAdvance, false
	}
	if slices.Contains(f.Stops, "") || slices.Contains(f.StopTokens, "") {
		return errors.New("--stop and --stop-token must not be empty")
	}
	if f.tieGiven = changed("near-tie"); !(f.nearTie >= 0) || math.IsInf(f.nearTie, 1) {
		return fmt.Errorf("--near-tie %g: must be a number of 0 or more", f.nearTie)
	}
	f.klGiven = changed("max-kl")
	if !(f.maxKL >= 0) || math.IsInf(f.maxKL, 1) {
		return fmt.Errorf("--max-kl %g: must be a number of 0 or more", f.maxKL)
	}
	return f.checkPrompts()
}

func (f *options) checkPrompts() error {
	if f.Golden == "" && len(f.Prompts) == 0 && f.PromptFile == "" && len(f.IDs) == 0 {
		return errors.New(`no prompt: use --prompt TEXT, --prompt-file FILE, --prompt - for stdin, or ` +
			`--ids 1,2,3`)
	}
	if slices.Contains(f.Prompts, "") {
		return errors.New("--prompt is empty")
	}
	return nil
}

func (f *options) options(t *prompts.Texts) generate.Options {
	o := generate.Options{Sampling: f.sampling, MaxTokens: f.maxTokens, MaxContext: t.Positions, StopTokens: t.Stop,
		PrefillSize: f.prefill, Margins: f.margins, Speculate: f.advance}
	if f.maxContext > 0 {
		o.MaxContext = f.maxContext
	}
	if t.Tokenizer != nil {
		o.NewStream = func() generate.TextStream { return t.Tokenizer.Stream(true) }
		for _, s := range f.Stops {
			o.StopTexts = append(o.StopTexts, strings.ReplaceAll(s, `\n`, "\n"))
		}
	}
	return o
}
