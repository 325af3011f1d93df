package generate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
)

// steady returns why an input or output changes its shape, or its place, from one token to the next; nil where none
// does, and the decoding steps of a batch can run in memory that stays the same.
func (l *layout) steady() error {
	if !l.cached() {
		return errors.New("the model has no cache")
	}
	for i := range l.caches {
		if c := &l.caches[i]; !c.isBuffer() {
			return fmt.Errorf("cache %q grows with each token: patch the model with --cache static --past-length",
				c.past.name)
		}
	}
	if !l.has(roles.PastLength) {
		return errors.New("the length of the attention mask tells how many tokens there are, and grows with them: " +
			"patch the model with --cache static --past-length")
	}
	for _, p := range l.others {
		if p.role == roles.Mask && len(p.dims) != 2 {
			return fmt.Errorf("mask %s has an axis for the new tokens", p)
		}
	}
	return nil
}

// counts reports whether an input is one more for each token.
func (p *port) counts() bool {
	switch p.role {
	case roles.Position, roles.Total, roles.Last, roles.PastLength:
		return true
	}
	return false
}

// steps runs the decoding steps of a batch, of one token of each sequence, in memory that stays where it is: what the
// tokens change is written over. So a step can be a CUDA graph, which is recorded in the first run. onnxruntime frees a
// graph with its session, and each batch records its own.
//
// A model that chooses tokens itself goes on from each, so several steps are run before the host looks: its tokens are
// taken one after the other from those that are known. What is behind the end of a sequence is never looked at.
type steps struct {
	binding *ort.Binding
	fed     []*ort.Value // the ids, then the inputs that count
	ports   []port       // theirs
	logits  *ort.Value

	past     int       // how many tokens are in the cache by what is fed now; -1 where that is not known
	ahead    int       // how many steps were run together the last time
	known    [][]int64 // tokens of steps that were run, of each step those of all rows
	recorded bool      // whether a step is a CUDA graph
}

// newSteps binds inputs and outputs for the next token of each sequence, with logits of these dimensions.
func (b *batch) newSteps(logits []int64) (_ *steps, err error) {
	g := b.g
	s := &steps{past: -1}
	if s.binding, err = g.session.Bind(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if g.session.RecordsGraphs() {
		if err := s.binding.Configure(graphID, notRecorded); err != nil {
			return nil, err
		}
	}
	w := b.window(b.begins(), 1, 1)
	for row := range w.end {
		w.end[row] = w.room // no token reads further than the cache is filled
	}
	s.ports = []port{g.layout.ids}
	for _, p := range g.layout.others {
		if p.counts() {
			s.ports = append(s.ports, p)
			continue
		}
		t, err := w.tensor(p)
		if err == nil {
			err = s.binding.Input(t)
		}
		if err != nil {
			return nil, err
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
		if err := s.binding.InputValue(p.name, v); err != nil {
			return nil, err
		}
	}
	for i := range g.layout.caches {
		c := &g.layout.caches[i]
		v := b.held[c.past.name]
		if err := errors.Join(s.binding.InputValue(c.past.name, v), s.binding.OutputValue(c.present, v)); err != nil {
			return nil, err
		}
	}
	if s.logits, err = g.session.Allocate(g.layout.logits.name, logits); err != nil {
		return nil, err
	}
	if err := s.binding.OutputValue(g.layout.logits.name, s.logits); err != nil || !g.chooses {
		return s, err
	}
	tokens := b.held[rememberedIn]
	err = errors.Join(s.binding.InputValue(rememberedIn, tokens), s.binding.OutputValue(rememberedOut, tokens),
		s.binding.OutputValue(nextIDs, s.fed[0]))
	for i, p := range s.ports[1:] {
		err = errors.Join(err, s.binding.OutputValue(nextName(p), s.fed[1+i]))
	}
	return s, err
}

// ofStep returns the shape of the logits of a step, by that of a run of fresh tokens in each of so many rows.
func ofStep(dims []int64, rows, fresh int) []int64 {
	dims = slices.Clone(dims)
	last := len(dims) - 1
	switch n := (&onnx.Tensor{Dims: dims[:max(last, 0)]}).Len(); {
	case n != int64(rows*fresh): // those of the last token alone
	case last == 1:
		dims[0] = int64(rows)
	case last > 1:
		dims[last-1] = 1
	}
	return dims
}

// graphID is the entry of a run's options that numbers CUDA graphs; notRecorded is that of runs of which none is made.
const graphID, notRecorded = "gpu_graph_id", "-1"

// step runs the model on the one token of each sequence that it has not seen, or takes what it chose ahead.
func (b *batch) step(ctx context.Context) error {
	s := b.steps
	if len(s.known) == 0 {
		if err := b.runSteps(ctx); err != nil {
			return err
		}
	}
	b.fresh, b.starts, b.chosen = 1, b.begins(), nil
	b.buffers.Steps++
	if len(s.known) == 0 {
		return errors.Join(b.logits.close(), b.logits.copy(s.logits))
	}
	b.chosen, s.known = s.known[0], s.known[1:]
	for row, id := range b.chosen[:len(b.sequences)] {
		if id < 0 {
			return fmt.Errorf("logits of sequence %d: the greatest is no number", row)
		}
	}
	b.buffers.Fed = true
	return nil
}

// runSteps runs one step, or, where the model chooses, as many as may follow.
func (b *batch) runSteps(ctx context.Context) error {
	s := b.steps
	if err := b.feed(); err != nil {
		return err
	}
	s.past = -1
	ahead := b.greedy && b.g.chooses
	if b.g.session.RecordsGraphs() && !s.recorded && b.room() >= recordingRoom {
		n, err := b.record(ctx)
		if err != nil {
			return err
		}
		if n > 0 && ahead {
			return b.takeKnown(n)
		}
		if n > 0 { // the logits are those of a later step
			if err := b.feed(); err != nil {
				return err
			}
			return s.binding.Run(ctx)
		}
		return nil
	}
	n := 1
	if ahead {
		n = b.mayFollow(2 * s.ahead)
	}
	for range n - 1 {
		if err := s.binding.Queue(ctx); err != nil {
			return err
		}
	}
	if err := s.binding.Run(ctx); err != nil || !ahead {
		return err
	}
	return b.takeKnown(n)
}

// feed writes what the next step is fed, if the last one has not.
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

// recordingRoom is how many free slots are wanted to record a step: onnxruntime runs it several times for that, 1.31
// three times, and each run of a model that chooses is a step behind the one before.
const recordingRoom = 8

// record has the first run recorded as a CUDA graph. It returns how many steps a model that chooses has made of it; 0
// for another model, which gave the same each time.
func (b *batch) record(ctx context.Context) (int, error) {
	s := b.steps
	id := strconv.FormatInt(b.g.graphs.Add(1), 10)
	if err := errors.Join(s.binding.Configure(graphID, id), s.binding.Run(ctx)); err != nil {
		return 0, err
	}
	s.recorded = true
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

// takeKnown takes the tokens of n steps, after which the model has written what it is fed next.
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

// room is how many slots are left for what is computed ahead.
func (b *batch) room() int {
	n := b.buffers.Slots - b.past
	for i, s := range b.sequences {
		if b.context > 0 {
			n = min(n, b.context-b.left[i]-len(s))
		}
	}
	return n
}

// mayFollow is how many of this many steps may be run before the host looks at a token: what memory and limits leave.
func (b *batch) mayFollow(n int) int {
	n = min(n, remembered, b.room())
	for i, s := range b.sequences {
		if b.most > 0 {
			n = min(n, b.prompts[i]+b.most-len(s))
		}
	}
	return max(n, 1)
}

// close frees what is bound, but for the caches.
func (s *steps) close() error {
	var errs []error
	if s.binding != nil {
		errs = append(errs, s.binding.Close())
	}
	for _, v := range append(slices.Clone(s.fed), s.logits) {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	return errors.Join(errs...)
}
