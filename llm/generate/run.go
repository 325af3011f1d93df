package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/ort"
)

// Options controls how tokens are chosen and when a sequence ends.
type Options struct {
	Sampling Sampling // the zero value is greedy
	// Samplings, unless it is nil, has the options of each prompt instead.
	Samplings []Sampling
	// Choose chooses the next token of a prompt instead of Sampling. It must not keep or change the logits.
	Choose func(prompt int, logits []float32) (int64, error)

	MaxTokens  int      // the most tokens to generate per sequence; 0: no limit
	MaxContext int      // the most tokens of a sequence including its prompt; 0: the model's limit
	StopTokens []int64  // ids that end a sequence
	StopTexts  []string // texts that end a sequence and are cut off; they require NewStream
	NewStream  func() TextStream
	Margins    bool // set Token.Margin, which costs another pass over the logits
	// PrefillSize is the most prompt tokens per run: of each sequence, or of all if a model is paged. 0: all, or 512.
	PrefillSize int
	// Speculate is the most tokens that a step tries in advance: those that followed the last tokens of the text where
	// they occurred before. The tokens are the same, except at near ties, and the model needs fewer steps.
	Speculate int
	// Draft, unless it is nil, chooses the tokens to try in advance: a smaller model with the same token ids.
	Draft *Generator
}

// Run is one generation from several prompts. It must be used by one goroutine only.
type Run struct {
	g         *Generator
	options   Options
	sequences []*sequence
	groups    [][]int
	times     Times
	tried     Speculation
	buffers   Buffers
	started   bool
}

// Start checks the prompts and options of a run. It does not run the model.
func (g *Generator) Start(o Options, prompts ...[]int64) (*Run, error) {
	r := &Run{g: g, options: o}
	if len(prompts) == 0 {
		return nil, errors.New("no prompt is given")
	}
	if o.MaxTokens < 0 || o.MaxContext < 0 || o.PrefillSize < 0 || o.Speculate < 0 {
		return nil, errors.New("options of a run: numbers of tokens must be 0 or more")
	}
	if len(o.StopTexts) > 0 && o.NewStream == nil {
		return nil, errors.New("stop texts need a tokenizer")
	}
	if slices.Contains(o.StopTexts, "") {
		return nil, errors.New("a stop text is empty")
	}
	if o.Speculate > 0 {
		if err := g.layout.speculates(); err != nil {
			return nil, fmt.Errorf("cannot try tokens in advance: %w", err)
		}
	}
	switch {
	case o.Draft == nil:
	case o.Speculate == 0:
		return nil, errors.New("options of a run: a draft model needs a number of tokens to try in advance")
	default:
		if err := g.drafts(o.Draft); err != nil {
			return nil, fmt.Errorf("the draft model cannot choose tokens: %w", err)
		}
	}
	if limit := int(g.layout.positions); limit > 0 && (o.MaxContext == 0 || limit < o.MaxContext) {
		r.options.MaxContext = limit
	}
	if n := len(o.Samplings); o.Samplings != nil && n != len(prompts) {
		return nil, fmt.Errorf("options of a run: %d prompts, but sampling options of %d", len(prompts), n)
	}
	for i, p := range prompts {
		s := &sequence{Sequence: Sequence{Prompt: p}, cut: cutter{stops: o.StopTexts}}
		if err := g.checkPrompt(p, r.options.MaxContext); err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		var err error
		if s.sampler, err = NewSampler(o.sampling(i)); err != nil {
			return nil, err
		}
		if o.NewStream != nil {
			s.stream = o.NewStream()
		}
		r.sequences = append(r.sequences, s)
		r.times.PromptTokens += len(p)
	}
	return r, nil
}

// sampling returns the options of a prompt.
func (o *Options) sampling(prompt int) Sampling {
	if o.Samplings != nil {
		return o.Samplings[prompt]
	}
	return o.Sampling
}

func (g *Generator) checkPrompt(ids []int64, limit int) error {
	if len(ids) == 0 {
		return errors.New("it has no tokens")
	}
	for k, id := range ids {
		if id < 0 || g.layout.vocabulary > 0 && id >= g.layout.vocabulary {
			return fmt.Errorf("token %d has id %d, but the model's ids are 0 to %d", k, id, g.layout.vocabulary-1)
		}
	}
	if room, input := g.layout.room(); room > 0 && len(ids) > room {
		return fmt.Errorf("it has %d tokens, but the cache of input %q holds only %d: patch the model with a larger "+
			"--cache static=M", len(ids), input, room)
	}
	if limit > 0 && len(ids) >= limit {
		return fmt.Errorf("it has %d tokens and the model has %d positions, so no position is left to "+
			"generate", len(ids), limit)
	}
	return nil
}

// Tokens generates, and yields every token as it arrives; tokens of one step come in the order of the prompts. It ends
// with an error if a run of the model fails or the context is done, even in the middle of a run. Sequences then returns
// the tokens so far. Tokens can be ranged over once.
func (r *Run) Tokens(ctx context.Context) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if r.started {
			yield(Token{}, errors.New("this run has already generated its tokens"))
			return
		}
		r.started = true
		groups, err := r.g.group(ctx, r.prompts())
		if r.options.Speculate > 0 && r.g.layout.paged == nil { // only blocks let sequences differ in their steps
			groups = alone(slices.Sorted(slices.Values(slices.Concat(groups...))))
		}
		for len(groups) > 0 && err == nil {
			group := groups[0]
			groups = groups[1:]
			var more bool
			if more, err = r.generate(ctx, group, yield); err == nil && !more {
				return
			}
			if err != nil && len(group) > 1 && ctx.Err() == nil && r.sequences[group[0]].IDs == nil {
				groups, err = append(alone(group), groups...), nil // the graph takes one sequence at a time
				for _, i := range group {                          // with the random numbers of a first run
					r.sequences[i].sampler, _ = NewSampler(r.options.sampling(i))
				}
			} else {
				r.groups = append(r.groups, group)
			}
		}
		if err != nil {
			yield(Token{}, err)
		}
	}
}

// alone makes a group of each prompt.
func alone(group []int) [][]int {
	var list [][]int
	for _, i := range group {
		list = append(list, []int{i})
	}
	return list
}

func (r *Run) prompts() [][]int64 {
	var list [][]int64
	for _, s := range r.sequences {
		list = append(list, s.Prompt)
	}
	return list
}

// Sequences returns the sequences generated so far, in the order of the prompts.
func (r *Run) Sequences() []Sequence {
	list := make([]Sequence, len(r.sequences))
	for i, s := range r.sequences {
		list[i] = s.Sequence
	}
	return list
}

// Groups returns the indices of the prompts that were computed together, one group after another.
func (r *Run) Groups() [][]int { return r.groups }

// Times returns the time spent so far.
func (r *Run) Times() Times { return r.times }

// Speculation returns the counts of proposed tokens so far.
func (r *Run) Speculation() Speculation { return r.tried }

// Buffers describes the key and value buffers of the last group of prompts, if the model writes them in place.
func (r *Run) Buffers() Buffers { return r.buffers }

// generate generates for the prompts of one group. more is false if yield asked to stop.
func (r *Run) generate(ctx context.Context, group []int, yield func(Token, error) bool) (more bool, err error) {
	if r.g.session.RecordsGraphs() { // onnxruntime stores graphs by the thread that recorded them
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	start := time.Now()
	var prompts [][]int64
	for _, i := range group {
		prompts = append(prompts, r.sequences[i].Prompt)
	}
	b, err := r.g.newBatch(prompts, r.samplersOf(group)...)
	if err != nil {
		return false, err
	}
	drafted := drafts{}
	defer func() { r.buffers, err = b.buffers, errors.Join(err, b.close(), drafted.close()) }()
	b.most, b.context = r.options.MaxTokens, r.options.MaxContext
	if r.options.Speculate > 0 {
		b.steady, b.presents = false, map[string]*ort.Value{}
	}
	b.greedy = r.options.Choose == nil && !r.options.Margins && r.likeliest()
	if err := b.advance(ctx, r.options.PrefillSize); err != nil {
		return false, err
	}
	r.times.Prefill += time.Since(start)
	start = time.Now()
	defer func() { r.times.Decode += time.Since(start) }()
	for open := len(group); ; {
		for k, i := range group {
			s := r.sequences[i]
			if s.Stop != "" {
				b.addEnded(k, s.IDs[len(s.IDs)-1])
				continue
			}
			if len(s.IDs) > 0 {
				r.tried.Steps++
			}
			if b.proposed[k] > 0 {
				s.accepted = 0
			}
			for accepted := true; accepted && s.Stop == ""; {
				token, err := r.next(b, k, i)
				if err == nil {
					accepted, err = b.choose(k, token.ID)
				}
				if err != nil {
					return false, fmt.Errorf("prompt %d: %w", i, err)
				}
				if accepted {
					r.tried.Accepted++
					s.accepted++
				}
				if token.Stop != "" {
					open--
				}
				if !yield(token, nil) {
					return false, nil
				}
			}
			if err := r.propose(ctx, b, drafted, k, s); err != nil {
				return false, fmt.Errorf("prompt %d, the draft model: %w", i, err)
			}
		}
		if open == 0 {
			return true, nil
		}
		if err := b.advance(ctx, 0); err != nil {
			return false, err
		}
	}
}

// propose proposes tokens for the next step of a sequence, which is row k of the batch.
func (r *Run) propose(ctx context.Context, b *batch, drafted drafts, k int, s *sequence) error {
	n := min(r.options.Speculate, max(leastProposed, 2*s.accepted)) // wrong tokens cost time
	if limit := r.options.MaxTokens; limit > 0 {
		n = min(n, limit-len(s.IDs)-1)
	}
	if limit := r.options.MaxContext; limit > 0 {
		n = min(n, limit-len(s.Prompt)-len(s.IDs)-1)
	}
	if s.Stop != "" || n < 1 {
		return nil
	}
	var list []int64
	var err error
	if r.options.Draft == nil {
		list = lookup(b.sequences[k], n)
	} else {
		list, err = r.draft(ctx, drafted, k, s, b.sequences[k], n)
		if err != nil {
			return err
		}
	}
	r.tried.Proposed += len(list)
	b.propose(k, list)
	return nil
}

// next chooses the next token of prompt i, which is row k of the batch.
func (r *Run) next(b *batch, k, i int) (Token, error) {
	s, o := r.sequences[i], &r.options
	t := Token{Prompt: i}
	if err := r.choose(b, k, &t); err != nil {
		return Token{}, err
	}
	if n := len(s.IDs); n > 0 {
		r.times.DecodedTokens++
	}
	r.times.GeneratedTokens++
	s.IDs = append(s.IDs, t.ID)
	switch {
	case slices.Contains(o.StopTokens, t.ID):
		t.Stop = StopToken
	case o.MaxTokens > 0 && len(s.IDs) >= o.MaxTokens:
		t.Stop = StopLength
	case o.MaxContext > 0 && len(s.Prompt)+len(s.IDs) >= o.MaxContext:
		t.Stop = StopContext
	}
	s.text(&t)
	s.Stop = t.Stop
	return t, nil
}

// choose chooses the next token of a prompt, which is row k of the batch.
func (r *Run) choose(b *batch, k int, t *Token) (err error) {
	s, o := r.sequences[t.Prompt], &r.options
	if b.chosen == nil && (o.Margins || o.Choose != nil) {
		logits, err := b.row(k)
		if err != nil {
			return err
		}
		if o.Margins {
			t.Margin = gap(logits)
			s.Margins = append(s.Margins, t.Margin)
		}
		if o.Choose != nil {
			t.ID, err = o.Choose(t.Prompt, logits)
			return err
		}
	}
	t.ID, err = b.next(k, s.sampler, s.Prompt, s.IDs)
	return err
}

// Generate generates from one prompt; see Start and Run.Tokens.
func (g *Generator) Generate(ctx context.Context, prompt []int64, o Options) iter.Seq2[Token, error] {
	r, err := g.Start(o, prompt)
	if err != nil {
		return func(yield func(Token, error) bool) { yield(Token{}, err) }
	}
	return r.Tokens(ctx)
}
