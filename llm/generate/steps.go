package generate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
)

// steady returns an error that names an input or output which changes its shape or address from token to token. It
// returns nil if the decoding steps of a batch can run in fixed memory.
func (l *layout) steady() error {
	if !l.cached() {
		return errors.New("the model has no cache")
	}
	if l.paged != nil {
		return errors.New("the block table of a paged model changes its shape")
	}
	for i := range l.caches {
		c := &l.caches[i]
		if !c.isState() && !c.isBuffer() {
			return fmt.Errorf("cache %q grows with each token: patch the model with --cache static --past-length",
				c.past.name)
		}
	}
	grows := l.hasBuffers() || slices.ContainsFunc(l.others, func(p port) bool {
		return p.role == roles.Mask && !l.masksNew(p)
	})
	if grows && !l.has(roles.PastLength) {
		return errors.New("the model reads the number of tokens from the length of the attention mask, which grows: " +
			"patch the model with --cache static --past-length")
	}
	for _, p := range l.others {
		if p.role == roles.Mask && len(p.dims) != 2 {
			return fmt.Errorf("mask %s has an axis for the new tokens", p)
		}
	}
	return nil
}

// counts reports whether an input grows by one with each token.
func (p *port) counts() bool {
	switch p.role {
	case roles.Position, roles.Total, roles.Last, roles.PastLength:
		return true
	}
	return false
}

// steps runs the decoding steps of a batch, one token per sequence, in fixed memory that each step overwrites. So a
// step can be a CUDA graph, recorded in the first run. onnxruntime frees a graph with its session; each batch records
// its own.
//
// A model that chooses tokens itself continues from them, so several steps run before the host reads a token. step then
// takes the known tokens one by one. Tokens after the end of a sequence are never read.
//
// A model with states has two kinds of step, which take turns: each reads the states that the other writes.
type steps struct {
	turns  []*turn
	fed    []*ort.Value          // the ids, then the inputs that count
	ports  []port                // the ports of fed
	states map[string]*ort.Value // where the next step writes states, by the names of their pasts
	logits *ort.Value            // or the tokens, if the model chooses them by Sample
	sample []*ort.Value          // the inputs of Sample

	past  int       // the number of cached tokens that fed now says; -1 if unknown
	ahead int       // the number of steps that were last run together
	known [][]int64 // the tokens of finished steps: for each step one per row
}

// turn is a step with its inputs and outputs.
type turn struct {
	binding  *ort.Binding
	recorded bool // whether the step is a CUDA graph
}

// newSteps binds inputs and outputs for one token per sequence, with logits of these dimensions.
func (b *batch) newSteps(logits []int64) (_ *steps, err error) {
	g := b.g
	s := &steps{past: -1, states: map[string]*ort.Value{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.ports = []port{g.layout.ids}
	for _, p := range g.layout.others {
		if p.counts() {
			s.ports = append(s.ports, p)
		}
	}
	w := b.window(b.begins(), 1, 1)
	if w.room > 0 {
		for row := range w.end {
			w.end[row] = w.room // no token reads past the filled part of the cache
		}
	}
	for _, p := range s.ports {
		t, err := w.tensor(p)
		if err != nil {
			return nil, err
		}
		v, err := g.session.Allocate(p.name, t.Dims)
		if err != nil {
			return nil, err
		}
		s.fed = append(s.fed, v)
	}
	for i := range g.layout.caches {
		if c := &g.layout.caches[i]; c.isState() {
			v, err := g.session.Allocate(c.past.name, b.held[c.past.name].Dims)
			if err != nil {
				return nil, err
			}
			s.states[c.past.name] = v
		}
	}
	if b.sampled != nil {
		logits = []int64{int64(b.rows())}
	}
	if s.logits, err = g.session.Allocate(b.chooses(), logits); err != nil {
		return nil, err
	}
	if b.sampled != nil {
		if s.sample, err = b.allocateSample(); err != nil {
			return nil, err
		}
	}
	if err := b.addTurn(s, w, b.held, s.states); err != nil || len(s.states) == 0 {
		return s, err
	}
	return s, b.addTurn(s, w, s.states, b.held)
}

// addTurn adds the step that reads states from one place and writes them to another. All other inputs are those of w.
func (b *batch) addTurn(s *steps, w *window, from, to map[string]*ort.Value) error {
	g := b.g
	binding, err := g.session.Bind()
	if err != nil {
		return err
	}
	s.turns = append(s.turns, &turn{binding: binding})
	if g.session.RecordsGraphs() {
		if err := binding.Configure(graphID, notRecorded); err != nil {
			return err
		}
	}
	for _, p := range g.layout.others {
		if p.counts() {
			continue
		}
		t, err := w.tensor(p)
		if err == nil {
			err = binding.Input(t)
		}
		if err != nil {
			return err
		}
	}
	for i, p := range s.ports {
		err = errors.Join(err, binding.InputValue(p.name, s.fed[i]))
	}
	for i := range g.layout.caches {
		c := &g.layout.caches[i]
		past := b.held[c.past.name]
		present := past
		if c.isState() {
			past, present = from[c.past.name], to[c.past.name]
		}
		err = errors.Join(err, binding.InputValue(c.past.name, past), binding.OutputValue(c.present, present))
	}
	for _, v := range s.sample {
		err = errors.Join(err, binding.InputValue(v.Name, v))
	}
	err = errors.Join(err, binding.OutputValue(b.chooses(), s.logits))
	if err != nil || !g.chooses {
		return err
	}
	tokens := b.held[rememberedIn]
	err = errors.Join(binding.InputValue(rememberedIn, tokens), binding.OutputValue(rememberedOut, tokens),
		binding.OutputValue(nextIDs, s.fed[0]))
	for i, p := range s.ports[1:] {
		err = errors.Join(err, binding.OutputValue(nextName(p), s.fed[1+i]))
	}
	return err
}

// ofStep returns the shape of a step's logits, from the shape after a run of fresh tokens in each of rows rows.
func ofStep(dims []int64, rows, fresh int) []int64 {
	dims = slices.Clone(dims)
	last := len(dims) - 1
	switch n := (&onnx.Tensor{Dims: dims[:max(last, 0)]}).Len(); {
	case n != int64(rows*fresh): // only the last token's logits
	case last == 1:
		dims[0] = int64(rows)
	case last > 1:
		dims[last-1] = 1
	}
	return dims
}

// graphID is the run option that numbers CUDA graphs. notRecorded is its value for runs without a graph.
const graphID, notRecorded = "gpu_graph_id", "-1"

// step runs the model on the one unseen token of each sequence, or takes a token that the model chose ahead.
func (b *batch) step(ctx context.Context) error {
	s := b.steps
	if len(s.known) == 0 {
		err := b.writeSample(s.sample)
		if err == nil {
			err = b.runSteps(ctx)
		}
		if err != nil {
			return err
		}
	}
	b.fresh, b.starts, b.chosen = 1, b.begins(), nil
	b.buffers.Steps++
	if b.sampled != nil {
		var err error
		b.chosen, err = int64s(s.logits)
		return err
	}
	if len(s.known) == 0 {
		return errors.Join(b.logits.close(), b.logits.copy(s.logits))
	}
	b.chosen, s.known = s.known[0], s.known[1:]
	for row, id := range b.chosen[:len(b.sequences)] {
		if id < 0 {
			return fmt.Errorf("logits of sequence %d: the greatest is not a number", row)
		}
	}
	b.buffers.Fed = true
	return nil
}

// runSteps runs one step, or several if the model chooses the tokens.
func (b *batch) runSteps(ctx context.Context) error {
	s := b.steps
	if err := b.feed(); err != nil {
		return err
	}
	s.past = -1
	ahead := b.greedy && b.g.chooses
	now := s.turns[0]
	if b.g.session.RecordsGraphs() && !now.recorded && b.room() >= recordingRoom {
		n, err := b.record(ctx, now)
		if err != nil {
			return err
		}
		if n > 0 && ahead {
			return b.takeKnown(n)
		}
		if n > 0 { // the logits belong to a later step
			if err := b.feed(); err != nil {
				return err
			}
			return now.binding.Run(ctx)
		}
		b.endTurn()
		return nil
	}
	n := 1
	if ahead {
		n = b.mayFollow(2 * s.ahead)
	}
	for range n - 1 {
		if err := now.binding.Queue(ctx); err != nil {
			return err
		}
	}
	if err := now.binding.Run(ctx); err != nil {
		return err
	}
	b.endTurn()
	if !ahead {
		return nil
	}
	return b.takeKnown(n)
}

// endTurn makes the states that the last step wrote the ones that the next step reads. A model that chooses has none.
func (b *batch) endTurn() {
	s := b.steps
	slices.Reverse(s.turns)
	for name := range s.states {
		b.held[name], s.states[name] = s.states[name], b.held[name]
	}
}

// feed writes the inputs of the next step unless the last step has written them.
func (b *batch) feed() error {
	s := b.steps
	if s.past == b.past {
		return nil
	}
	w := b.window(b.begins(), 1, 1)
	for i, p := range s.ports {
		t, err := w.tensor(p)
		if err == nil {
			err = s.fed[i].Write(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recordingRoom is the number of free slots needed to record a step. onnxruntime runs the step several times to record
// it (1.31: three times), and each run of a model that chooses is one step further.
const recordingRoom = 8

// record records the first run as a CUDA graph. It returns the number of steps that a model which chooses made during
// that, or 0 for another model, whose runs all compute the same step.
func (b *batch) record(ctx context.Context, now *turn) (int, error) {
	s := b.steps
	id := strconv.FormatInt(b.g.graphs.Add(1), 10)
	if err := errors.Join(now.binding.Configure(graphID, id), now.binding.Run(ctx)); err != nil {
		return 0, err
	}
	now.recorded = true
	if !b.g.chooses {
		return 0, nil
	}
	for i, p := range s.ports {
		if p.role == roles.PastLength {
			now, err := int64s(s.fed[i])
			if err != nil {
				return 0, err
			}
			return int(now[0]) - b.begins()[0], nil
		}
	}
	return 0, nil
}

// takeKnown takes the tokens of n steps. The model has written the inputs of the next step.
func (b *batch) takeKnown(n int) error {
	s := b.steps
	tokens, err := int64s(b.held[rememberedIn])
	if err != nil {
		return err
	}
	rows := b.rows()
	s.known = slices.Collect(slices.Chunk(tokens[rows*(remembered-n):], rows))
	s.past, s.ahead = b.past+n, n
	return nil
}

// int64s copies a value of int64 to the host.
func int64s(v *ort.Value) ([]int64, error) {
	t, err := v.Tensor()
	if err != nil {
		return nil, err
	}
	elements, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	var list []int64
	for b := range slices.Chunk(elements, 8) {
		list = append(list, int64(binary.LittleEndian.Uint64(b)))
	}
	return list, nil
}

// room returns the number of free slots for steps ahead.
func (b *batch) room() int {
	n := math.MaxInt
	if b.buffers.Slots > 0 {
		n = b.buffers.Slots - b.past
	}
	for i, s := range b.sequences {
		if b.context > 0 {
			n = min(n, b.context-b.left[i]-len(s))
		}
	}
	return n
}

// mayFollow returns how many of n steps may run before the host reads a token, by memory and limits.
func (b *batch) mayFollow(n int) int {
	n = min(n, remembered, b.room())
	for i, s := range b.sequences {
		if b.most > 0 {
			n = min(n, b.prompts[i]+b.most-len(s))
		}
	}
	return max(n, 1)
}

// close frees the bound values except the caches.
func (s *steps) close() error {
	var errs []error
	for _, t := range s.turns {
		errs = append(errs, t.binding.Close())
	}
	values := append(slices.Collect(maps.Values(s.states)), s.logits)
	for _, v := range slices.Concat(values, s.fed, s.sample) {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	return errors.Join(errs...)
}
