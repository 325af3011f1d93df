package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
)

// batch is a group of sequences that the model computes together.
type batch struct {
	g         *Generator
	binding   *ort.Binding
	sequences [][]int64 // all tokens so far
	left      []int     // slots of padding before each sequence
	past      int       // slots in the cache; the longest sequence's if the sequences fill it differently
	filled    []int     // slots in the cache per sequence if they differ, else nil
	prompts   []int     // the number of prompt tokens per sequence
	starts    []int     // the first slot of each sequence in the last run
	logits    logits
	// stepLogits is the shape of the logits of a run of one token per sequence.
	stepLogits []int64
	fresh      int // new slots of the last run
	scratch    []float32
	buffers    Buffers
	held       map[string]*ort.Value // buffers, and states of steady models, by the inputs that they are bound to
	paged      *pagedBatch           // the blocks of each sequence, nil for a model without pools
	proposed   []int                 // the number of proposed tokens at the end of each sequence
	presents   map[string]*ort.Value // the caches after the last run by output, if tokens may be taken back, else nil
	steps      *steps                // nil until a token is decoded in buffers
	steady     bool                  // whether decoding steps run in fixed memory
	most       int                   // the most tokens to generate per sequence; 0: no limit
	context    int                   // the most tokens of a sequence including its prompt; 0: no limit
	greedy     bool                  // whether only the likeliest token is needed from the logits
	sampled    *sampled              // how the model chooses the tokens; nil if its logits are read
	chosen     []int64               // the tokens that the last step chose; nil if the host must read the logits
}

// newBatch starts a batch of prompts. If their lengths differ, it pads before the shorter ones for a model with a
// cache, and after them for a model that is fed whole sequences.
//
// With a sampler for each prompt the model chooses the tokens if it can.
func (g *Generator) newBatch(prompts [][]int64, samplers ...*Sampler) (*batch, error) {
	b := &batch{g: g, left: make([]int, len(prompts)), held: map[string]*ort.Value{},
		steady: g.steady, proposed: make([]int, len(prompts))}
	longest := 0
	for _, p := range prompts {
		b.sequences = append(b.sequences, append(make([]int64, 0, len(p)+64), p...))
		b.prompts = append(b.prompts, len(p))
		longest = max(longest, len(p))
	}
	if g.layout.paged != nil {
		b.paged = &pagedBatch{ends: make([]pagedEnd, len(prompts))}
	} else if g.layout.byRows() {
		b.filled = make([]int, len(prompts))
	} else if g.layout.cached() || !g.right {
		for i, p := range prompts {
			b.left[i] = longest - len(p)
		}
	}
	if len(samplers) > 0 && g.canSample(prompts) {
		b.sampled = &sampled{samplers,
			slices.ContainsFunc(samplers, func(s *Sampler) bool { return s.opts.penalises() })}
		if b.sampled.penalises && !g.layout.hasBuffers() {
			b.steady = false // no memory has room for all tokens
		}
	}
	var err error
	if b.binding, err = g.session.Bind(); err != nil {
		return nil, err
	}
	err = errors.Join(b.binding.HostOutput(b.chooses()), b.emptyCache(), b.rememberTokens())
	if g.session.RecordsGraphs() {
		err = errors.Join(err, b.binding.Configure(graphID, notRecorded))
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// rememberTokens binds the buffer of recent tokens that a model which chooses tokens reads and writes.
func (b *batch) rememberTokens() error {
	if !b.g.chooses {
		return nil
	}
	v, err := b.g.session.Allocate(rememberedIn, []int64{remembered, int64(b.rows())})
	if err != nil {
		return err
	}
	b.held[rememberedIn] = v
	return b.binding.InputValue(rememberedIn, v)
}

// emptyCache binds a past of zero tokens. States of fixed size start as zeros. makeRoom binds the buffers; their
// content after the last token does not matter.
func (b *batch) emptyCache() error {
	for i := range b.g.layout.caches {
		c := &b.g.layout.caches[i]
		if c.isBuffer() {
			continue
		}
		t, err := values(c.past, c.shape(b.rows()), func(int) int64 { return 0 })
		if err != nil {
			return fmt.Errorf("cannot make an empty cache: %w", err)
		}
		if err := b.binding.Input(t); err != nil {
			return fmt.Errorf("cannot make an empty cache: %w", err)
		}
	}
	return nil
}

// rows is the number of sequences including those that fill the model's fixed batch.
func (b *batch) rows() int { return max(len(b.sequences), b.g.layout.batch()) }

// slots is the number of slots that each sequence takes, including padding.
func (b *batch) slots() int {
	n := 0
	for i, s := range b.sequences {
		n = max(n, b.left[i]+len(s))
	}
	return n
}

// token returns the id in a slot of a row. Padding and the rows that fill a fixed batch repeat an existing token.
func (b *batch) token(row, slot int) int64 {
	row = min(row, len(b.sequences)-1)
	s := b.sequences[row]
	if k := slot - b.left[row]; k >= 0 && k < len(s) {
		return s[k]
	}
	return s[0]
}

// advance runs the model on the slots that it has not seen, at most chunk at a time. A model without a cache runs on
// whole sequences.
func (b *batch) advance(ctx context.Context, chunk int) error {
	if b.paged != nil {
		return b.advancePaged(ctx, chunk)
	}
	cached := b.g.layout.cached()
	if !cached {
		return b.run(ctx, make([]int, len(b.sequences)), b.slots())
	}
	if err := b.makeRoom(); err != nil {
		return err
	}
	if fixed := b.g.layout.sequence(); fixed > 0 {
		chunk = fixed
		if left := b.slots() - b.past; left%fixed != 0 {
			return fmt.Errorf("%s takes %d tokens per run, but %d remain: export it with a sequence of any length",
				b.g.session.Path(), fixed, left)
		}
	}
	if b.steady && b.fresh > 0 && b.oneIsLeft() {
		if b.steps == nil {
			var err error
			if b.steps, err = b.newSteps(b.stepLogits); err != nil {
				return err
			}
		}
		if err := b.step(ctx); err != nil {
			return err
		}
		b.past++
		for i := range b.filled {
			b.filled[i]++
		}
		return nil
	}
	if b.filled != nil {
		return b.advanceRows(ctx, chunk)
	}
	for b.past < b.slots() {
		fresh := b.slots() - b.past
		if chunk > 0 {
			fresh = min(fresh, chunk)
		}
		if err := b.run(ctx, b.alike(), fresh); err != nil {
			return err
		}
		b.past += fresh
	}
	return nil
}

// run runs the model on fresh slots of each sequence from its start on, and makes the present the next past.
func (b *batch) run(ctx context.Context, starts []int, fresh int) error {
	l := b.g.layout
	real := fresh
	if fixed := l.sequence(); fixed > 0 && !l.cached() {
		if fresh > fixed {
			return fmt.Errorf("%s takes sequences of %d tokens, but this one has %d", b.g.session.Path(), fixed, fresh)
		}
		fresh = fixed
	}
	w := b.window(starts, fresh, real)
	ids, err := w.tokens(l.ids)
	if err == nil {
		err = b.binding.Input(ids)
	}
	for i := 0; err == nil && i < len(l.others); i++ {
		t, e := w.tensor(l.others[i])
		if err = e; err == nil {
			err = b.binding.Input(t)
		}
	}
	if err == nil && b.sampled != nil {
		err = b.bindSample(b.sampleRows())
	}
	if err == nil {
		err = b.bindOutputs()
	}
	if err == nil {
		err = b.binding.Run(ctx)
	}
	if err != nil {
		return err
	}
	b.fresh, b.starts = fresh, starts
	return b.passOn()
}

// window describes fresh slots of each sequence from its start on; the first real ones hold tokens.
func (b *batch) window(starts []int, fresh, real int) *window {
	w := &window{rows: b.rows(), past: slices.Max(starts), fresh: fresh, masksNew: b.g.layout.masksNew}
	if b.g.layout.has(roles.PastLength) {
		w.room = b.buffers.Slots
	}
	w.ids = make([]int64, w.rows*fresh)
	w.left, w.end, w.starts = make([]int, w.rows), make([]int, w.rows), make([]int, w.rows)
	for row := range w.rows {
		known := min(row, len(b.sequences)-1)
		w.left[row], w.starts[row] = b.left[known], starts[known]
		w.end[row] = min(starts[known]+real, b.left[known]+len(b.sequences[known]))
		for k := range fresh {
			w.ids[row*fresh+k] = b.token(row, starts[known]+k)
		}
	}
	return w
}

// alike returns the slot at which the next tokens of every sequence begin when the cache is filled evenly.
func (b *batch) alike() []int { return slices.Repeat([]int{b.past}, len(b.sequences)) }

// begins returns the slot at which the next tokens of each sequence begin.
func (b *batch) begins() []int {
	if b.filled != nil {
		return slices.Clone(b.filled)
	}
	return b.alike()
}

// oneIsLeft reports whether the model has seen all tokens except the last one of each sequence.
func (b *batch) oneIsLeft() bool {
	for i, start := range b.begins() {
		if b.left[i]+len(b.sequences[i])-start != 1 {
			return false
		}
	}
	return true
}

func (b *batch) bindOutputs() error {
	l := b.g.layout
	if err := b.logits.close(); err != nil {
		return err
	}
	if err := b.binding.HostOutput(b.chooses()); err != nil {
		return err
	}
	for i := range l.caches {
		if l.caches[i].isBuffer() {
			continue // bound with its past
		}
		if err := b.binding.Output(l.caches[i].present); err != nil {
			return err
		}
	}
	return nil
}

// passOn binds the outputs of the run as the past of the next one, and so frees the old past. Buffers stay bound to
// both.
func (b *batch) passOn() error {
	outputs, err := b.binding.Outputs()
	if err != nil {
		return err
	}
	b.chosen = nil
	if b.sampled != nil {
		b.chosen, err = int64s(outputs[0])
		err = errors.Join(err, outputs[0].Close())
	} else {
		err = b.logits.take(outputs[0])
		b.stepLogits = ofStep(b.logits.dims, b.rows(), b.fresh)
	}
	for _, v := range outputs[1:] {
		if i := b.g.layout.cacheOf(v.Name); i >= 0 && !b.g.layout.caches[i].isBuffer() {
			err = errors.Join(err, b.binding.InputValue(b.g.layout.caches[i].past.name, v))
			if past := b.g.layout.caches[i].past.name; b.steady {
				v, b.held[past] = b.held[past], v
			} else if b.presents != nil {
				v, b.presents[v.Name] = b.presents[v.Name], v
			}
		}
		if v != nil {
			err = errors.Join(err, v.Close())
		}
	}
	return err
}

// row returns the logits after the last token of a sequence that is not only proposed. They are valid until the next
// run.
func (b *batch) row(i int) ([]float32, error) {
	if b.paged != nil {
		rows := b.paged.ends[i].logits
		return rows[len(rows)-1-b.proposed[i]], nil
	}
	first := b.left[i] + len(b.sequences[i]) - b.proposed[i] - 1 - b.starts[i]
	at, err := rowOf(b.logits.dims, b.rows(), b.fresh, i, first)
	if err != nil {
		return nil, err
	}
	return b.logits.row(at, &b.scratch)
}

// add appends a token to a sequence.
func (b *batch) add(i int, id int64) { b.sequences[i] = append(b.sequences[i], id) }

// addEnded tells the batch before each step that a sequence has ended. Its row takes some token, unless it has blocks
// of its own.
func (b *batch) addEnded(i int, last int64) {
	if b.paged == nil {
		b.add(i, last)
		return
	}
	b.paged.end(i)
}

func (b *batch) close() error {
	err := b.logits.close()
	if b.steps != nil {
		err = errors.Join(err, b.steps.close())
	}
	err = errors.Join(err, b.binding.Close())
	for _, list := range []map[string]*ort.Value{b.held, b.presents} {
		for _, v := range list {
			err = errors.Join(err, v.Close())
		}
	}
	return err
}
