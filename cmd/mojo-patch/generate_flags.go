package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/spf13/cobra"
)

type generateFlags struct {
	backend backend

	tokenizer  string
	prompts    []string
	promptFile string
	ids        []string
	chat       bool
	template   string
	system     string

	sampling   generate.Sampling
	maxTokens  int
	maxContext int
	stops      []string
	stopTokens []string
	ignoreEOS  bool
	prefill    int
	margins    bool
	graph      bool // record a decode step as a CUDA graph
	graphGiven bool

	compare, golden string
	maxKL           float64
	klGiven         bool
	follow          string
	nearTie         float64
	tieGiven        bool
}

func (f *generateFlags) flags(c *cobra.Command) {
	f.backend.flags(c)
	n := c.Flags()
	n.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer.json, or the folder with it (default: the model's folder)")
	completeFile(c, "tokenizer", "json")
	n.StringArrayVar(&f.prompts, "prompt", nil, `text to go on from, "-" reads it from stdin; repeatable`)
	n.StringVar(&f.promptFile, "prompt-file", "", "file with a prompt")
	n.StringArrayVar(&f.ids, "ids", nil,
		"token ids to go on from, separated by commas: no tokenizer is needed; repeatable")
	n.BoolVar(&f.chat, "chat", false, "put each prompt into the model's chat template, as what the user says")
	n.StringVar(&f.template, "template", "", "file with the chat template (default: that of the tokenizer's folder)")
	n.StringVar(&f.system, "system", "", "what the system says in the chat, before the user")
	n.IntVarP(&f.maxTokens, "max-tokens", "n", 256,
		"how many tokens to generate at most for each prompt; 0 sets no limit")
	n.IntVar(&f.maxContext, "max-context", 0,
		"how many tokens a prompt and its text have at most (default: by config.json, or the model's tables)")
	n.Float64Var(&f.sampling.Temperature, "temperature", 0, "sample, from logits divided by this; 0 is greedy")
	n.IntVar(&f.sampling.TopK, "top-k", 0, "sample among this many of the likeliest tokens; 0 takes all")
	n.Float64Var(&f.sampling.TopP, "top-p", 0,
		"sample among the likeliest tokens that have this probability together; 0 takes all")
	n.Float64Var(&f.sampling.MinP, "min-p", 0,
		"sample among the tokens at least this many times as likely as the likeliest one")
	n.Float64Var(&f.sampling.RepetitionPenalty, "repetition-penalty", 0,
		"make tokens that are there less likely, above 1; 0 and 1 have no effect")
	n.Float64Var(&f.sampling.FrequencyPenalty, "frequency-penalty", 0,
		"subtract this from a logit for each time that its token was generated, -2 to 2")
	n.Float64Var(&f.sampling.PresencePenalty, "presence-penalty", 0,
		"subtract this from the logits of tokens that were generated, -2 to 2")
	n.Uint64Var(&f.sampling.Seed, "seed", 1, "seed of sampling")
	n.StringArrayVar(&f.stops, "stop", nil,
		`text that ends the generation and is cut off; \n is a line break; repeatable`)
	n.StringArrayVar(&f.stopTokens, "stop-token", nil, "id or text of a token that ends the generation; repeatable")
	n.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on behind the end tokens of the model's configuration")
	n.IntVar(&f.prefill, "prefill-chunk", 0,
		"how many tokens of a prompt a run takes at most; 0 takes them all at once")
	n.BoolVar(&f.graph, "cuda-graph", false,
		"record a decoding step as a CUDA graph and replay it (default: with --provider cuda, for a model of apply "+
			"--cache static --past-length)")
	n.BoolVar(&f.margins, "margins", false, "with --json: how far the likeliest token was above the next one, for each")
	n.StringVar(&f.compare, "compare", "", "another model, to compare its choices")
	completeFile(c, "compare", "onnx")
	n.StringVar(&f.follow, "follow", "",
		"with --compare: token ids that both models are given, in place of the first one's choices")
	n.Float64Var(&f.maxKL, "max-kl", 0,
		"with --compare: fail when the KL divergence of a step is greater, in nats, in place of where a token differs")
	n.StringVar(&f.golden, "golden", "", "recorded greedy generations to compare with, .npz")
	completeFile(c, "golden", "npz")
	n.Float64Var(&f.nearTie, "near-tie", generate.NearTie,
		fmt.Sprintf("margin up to which rounding may decide, in logits (default for half precision: %g)",
			generate.NearTieHalf))
}

func (f *generateFlags) check(c *cobra.Command) error {
	if err := f.backend.check(c); err != nil {
		return err
	}
	if f.backend.evaluator {
		return errors.New("generate runs models in onnxruntime, and not in the built-in evaluator")
	}
	f.backend.fallback = false
	changed := c.Flags().Changed
	cuda := f.backend.provider == providerCUDA
	if f.graphGiven = changed("cuda-graph"); f.graph && !cuda {
		return errors.New("--cuda-graph is for --provider cuda")
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
			return fmt.Errorf("--%s %d: it is 0 or more", x.flag, x.v)
		}
	}
	if slices.Contains(f.stops, "") || slices.Contains(f.stopTokens, "") {
		return errors.New("--stop and --stop-token are not empty")
	}
	if f.tieGiven = changed("near-tie"); !(f.nearTie >= 0) || math.IsInf(f.nearTie, 1) {
		return fmt.Errorf("--near-tie %g: it is a number of 0 or more", f.nearTie)
	}
	if f.tieGiven && f.compare == "" && f.golden == "" {
		return errors.New("--near-tie is for --compare and --golden")
	}
	if f.klGiven = changed("max-kl"); f.klGiven && f.compare == "" {
		return errors.New("--max-kl is for --compare")
	}
	if !(f.maxKL >= 0) || math.IsInf(f.maxKL, 1) {
		return fmt.Errorf("--max-kl %g: it is a number of 0 or more", f.maxKL)
	}
	if f.follow != "" && (f.compare == "" || changed("max-tokens")) {
		return errors.New("--follow is for --compare, and says how many tokens there are: --max-tokens cannot stand " +
			"with it")
	}
	if !f.chat && (changed("template") || changed("system")) {
		return errors.New("--template and --system are for --chat")
	}
	if f.compare != "" || f.golden != "" {
		for _, other := range []string{"temperature", "top-k", "top-p", "min-p", "repetition-penalty",
			"frequency-penalty", "presence-penalty", "seed", "stop", "margins"} {
			if changed(other) {
				return fmt.Errorf("a comparison follows the likeliest tokens: --%s cannot stand with --compare and "+
					"--golden", other)
			}
		}
	}
	return f.checkPrompts(changed)
}

func (f *generateFlags) checkPrompts(changed func(string) bool) error {
	if f.golden != "" {
		for _, other := range []string{"compare", "prompt", "prompt-file", "ids", "chat", "max-tokens", "stop-token",
			"ignore-eos"} {
			if changed(other) {
				return fmt.Errorf("--golden has prompts and tokens of its own: --%s cannot stand with it", other)
			}
		}
		return nil
	}
	text := len(f.prompts) > 0 || f.promptFile != ""
	switch {
	case text && len(f.ids) > 0:
		return errors.New("--ids cannot stand with --prompt and --prompt-file")
	case !text && len(f.ids) == 0:
		return errors.New(`there is no prompt: give --prompt TEXT, --prompt-file FILE, --prompt - for stdin, or ` +
			`--ids 1,2,3`)
	case len(f.ids) > 0 && f.chat:
		return errors.New("--chat makes text of a prompt, and --ids are no text")
	}
	if slices.Contains(f.prompts, "") {
		return errors.New("--prompt is empty")
	}
	return nil
}

func (f *generateFlags) options(t *texts) generate.Options {
	o := generate.Options{Sampling: f.sampling, MaxTokens: f.maxTokens, MaxContext: t.positions, StopTokens: t.stop,
		PrefillSize: f.prefill, Margins: f.margins}
	if f.maxContext > 0 {
		o.MaxContext = f.maxContext
	}
	if t.tokenizer != nil {
		o.NewStream = func() generate.TextStream { return t.tokenizer.Stream(true) }
		for _, s := range f.stops {
			o.StopTexts = append(o.StopTexts, strings.ReplaceAll(s, `\n`, "\n"))
		}
	}
	return o
}

func parseIDs(flag, list string) ([]int64, error) {
	var ids []int64
	for _, s := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, err := strconv.ParseInt(s, 10, 64)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("--%s %q: write numbers of 0 or more, separated by commas", flag, list)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("--%s is empty", flag)
	}
	return ids, nil
}
