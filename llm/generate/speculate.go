package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/ort"
)

// Speculation counts proposed tokens: a step computes the logits after each of them at once, and the tokens up to the
// first one that the model would not have chosen are kept.
type Speculation struct {
	Steps    int `json:"steps"`    // of all sequences: each keeps its accepted tokens and one more
	Proposed int `json:"proposed"` // tokens
	Accepted int `json:"accepted"`
}

// leastProposed is the most tokens to propose after a step in which no proposed token was accepted.
const leastProposed = 2

// longestMatch and shortestMatch are the numbers of last tokens that are looked up in the text before them.
const longestMatch, shortestMatch = 3, 2

// lookup proposes up to most tokens: those that followed the last tokens of the text at their latest place before.
func lookup(text []int64, most int) []int64 {
	for n := longestMatch; n >= shortestMatch; n-- {
		end := len(text) - n
		for at := end - 1; at >= 0 && most > 0; at-- {
			if !slices.Equal(text[at:at+n], text[end:]) {
				continue
			}
			list := slices.Clone(text[at+n:])
			for len(list) < most { // the text repeats itself from there on
				list = append(list, list[len(list)-(end-at)])
			}
			return list[:most]
		}
	}
	return nil
}

// speculates returns an error if the model cannot take tokens back, or lacks the logits after each token.
func (l *layout) speculates() error {
	last := l.lastAlone()
	if l.paged != nil {
		last = !l.everyToken()
	}
	if err := l.takesBack(); err != nil || !last {
		return err
	}
	return fmt.Errorf("output %q has the logits of the last token only: patch the model without --last-logits",
		l.logits.name)
}

// takesBack returns an error if the model cannot take tokens back.
func (l *layout) takesBack() error {
	for _, c := range l.caches {
		if c.isState() {
			return fmt.Errorf("input %q is a state, which cannot take tokens back", c.past.name)
		}
	}
	if l.cached() && l.sequence() > 0 {
		return fmt.Errorf("input %q takes %d tokens per run", l.ids.name, l.sequence())
	}
	return nil
}

// propose appends proposed tokens to a sequence.
func (b *batch) propose(i int, ids []int64) {
	b.sequences[i] = append(b.sequences[i], ids...)
	b.proposed[i] = len(ids)
}

// choose takes the token that the model chose after the last accepted one. accepted reports whether it was proposed:
// then the next one can be chosen, too. Otherwise the remaining proposals are taken back.
func (b *batch) choose(i int, id int64) (accepted bool, err error) {
	s, n := b.sequences[i], b.proposed[i]
	if n > 0 && s[len(s)-n] == id {
		b.proposed[i]--
		return true, nil
	}
	if b.proposed[i] = 0; n > 0 {
		b.sequences[i] = s[:len(s)-n]
		err = b.takeBack(i, n)
	}
	b.add(i, id)
	return false, err
}

// takeBack makes the caches end n tokens earlier. Pools and buffers are overwritten from there on. Only one sequence at
// a time has another cache.
func (b *batch) takeBack(i, n int) (err error) {
	switch {
	case !b.g.layout.cached():
		return nil
	case b.paged != nil:
		b.paged.ends[i].past -= n
		return nil
	case b.filled != nil:
		b.filled[i] -= n
	}
	b.past -= n
	for k := range b.g.layout.caches {
		if c := &b.g.layout.caches[k]; !c.isBuffer() {
			err = errors.Join(err, b.shorten(c, b.presents[c.present]))
		}
	}
	return err
}

// shorten binds the tokens of a present that remain as the next past.
func (b *batch) shorten(c *cache, present *ort.Value) error {
	t, err := present.Tensor()
	if err != nil {
		return err
	}
	dims, strides := slices.Clone(t.Dims), make([]int64, len(t.Dims))
	for i, stride := len(dims)-1, int64(1); i >= 0; i-- {
		strides[i] = stride
		stride *= dims[i]
	}
	dims[c.sequence] = int64(b.past)
	if t, err = t.View(c.past.name, dims, 0, strides); err != nil {
		return err
	}
	return b.binding.Input(t)
}

// draft is the draft model's caches of a sequence, and what chooses its tokens.
type draft struct {
	*batch
	sampler *Sampler
}

// drafts has the draft of each sequence of a batch, by row.
type drafts map[int]*draft

// drafts returns an error if the tokens of a draft model cannot be proposed to the model.
func (g *Generator) drafts(draft *Generator) error {
	if err := draft.layout.takesBack(); err != nil {
		return err
	}
	if own, other := g.layout.vocabulary, draft.layout.vocabulary; own != other {
		return fmt.Errorf("it has %d token ids, but the model has %d: use a draft with the model's tokenizer",
			other, own)
	}
	return nil
}

// draft returns up to most tokens that the draft model chooses behind a text, with a run for each: by the options of
// the sequence and its next random numbers. So it proposes the tokens that the model will choose if both agree on the
// probabilities. What the model chooses does not depend on the draft.
func (r *Run) draft(ctx context.Context, d drafts, row int, s *sequence, text []int64, most int) ([]int64, error) {
	g := r.options.Draft
	if limit := int(g.layout.positions); limit > 0 {
		most = min(most, limit-len(text)+1)
	}
	if most < 1 {
		return nil, nil
	}
	b := d[row]
	if b == nil {
		b = &draft{}
		sampler, err := NewSampler(s.sampler.opts)
		if err == nil {
			b.batch, err = g.newBatch([][]int64{text}, sampler)
		}
		if err != nil {
			return nil, err
		}
		b.sampler, b.steady, b.presents = sampler, false, map[string]*ort.Value{}
		if b.paged != nil {
			b.paged.keeps = true
		}
		d[row] = b
	} else if err := b.follow(text); err != nil {
		return nil, err
	}
	b.sampler.early = nil
	for n := range most {
		b.sampler.early = append(b.sampler.early, s.sampler.ahead(n))
	}
	var list []int64
	for len(list) < most {
		if err := b.advance(ctx, r.options.PrefillSize); err != nil {
			return nil, err
		}
		b.prompts[0] = len(s.Prompt) // the rest of the text was a prompt to the draft
		id, err := b.next(0, b.sampler, s.Prompt, b.sequences[0][len(s.Prompt):])
		if err != nil {
			return nil, err
		}
		b.add(0, id)
		list = append(list, id)
	}
	return list, nil
}

// follow continues a batch of one sequence from a text. Its caches keep the common start of both.
func (b *batch) follow(text []int64) error {
	seen := b.past
	switch {
	case b.paged != nil:
		seen = b.paged.ends[0].past
	case b.filled != nil:
		seen = b.filled[0]
	}
	same := 0
	for same < min(seen, len(text)-1) && b.sequences[0][same] == text[same] {
		same++
	}
	b.sequences[0] = append(b.sequences[0][:0], text...)
	if same == seen {
		return nil
	}
	return b.takeBack(0, seen-same)
}

func (d drafts) close() (err error) {
	for _, b := range d {
		err = errors.Join(err, b.close())
	}
	return err
}
