package generate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// leastRoom is how many slots buffers of any length have at first.
const leastRoom = 256

// mostAhead is for how many tokens that are to come buffers have room at most.
const mostAhead = 4096

// Buffers says how a run kept keys and values, where the model writes them in place.
type Buffers struct {
	Count int   `json:"count"` // 0: the model has no such buffers
	Slots int   `json:"slots"` // of each, in the end: tokens and padding
	Bytes int64 `json:"bytes"` // of all
	Grown int   `json:"grown"` // how often they were exchanged for greater ones
	Rows  bool  `json:"rows"`  // each sequence has a number of tokens of its own, and no padding before it
	// Steps is how many tokens of each sequence came of runs in memory that stays where it is; with a session that
	// records CUDA graphs each was a graph.
	Steps int  `json:"steps"`
	Fed   bool `json:"fed"` // whether the model chose the tokens of these
}

// room is how many slots the buffers of the model have by its graph, 0 for any number, and the input that says so.
func (l *layout) room() (slots int, input string) {
	for _, c := range l.caches {
		if d := c.past.dims; c.isBuffer() && d[c.sequence].Value >= 0 {
			return int(d[c.sequence].Value), c.past.name
		}
	}
	return 0, ""
}

// makeRoom sees to it that the buffers have as many slots as all tokens of the batch take. Those of any length are
// doubled, and keep what is in them. It errs, before anything is run, where the graph has a number for them that is
// not enough.
func (b *batch) makeRoom() error {
	slots := b.slots()
	if slots <= b.buffers.Slots || !slices.ContainsFunc(b.g.layout.caches, func(c cache) bool { return c.isBuffer() }) {
		return nil
	}
	room, input := b.g.layout.room()
	if room > 0 && slots > room {
		return fmt.Errorf("the cache is full: input %q holds %d tokens, and %d are to be in it with padding: patch "+
			"the model with a greater --cache static=M", input, room, slots)
	}
	if room == 0 {
		ahead := 0
		if b.g.steady { // to be exchanged costs a new recording
			ahead = min(b.most, mostAhead)
		}
		for room = max(leastRoom, b.buffers.Slots); room < slots+ahead; {
			room *= 2
		}
	}
	was := b.buffers
	if b.steps != nil { // of buffers of another size
		if err := b.steps.close(); err != nil {
			return err
		}
		b.steps = nil
	}
	b.buffers = Buffers{Slots: room, Grown: was.Grown, Steps: was.Steps, Fed: was.Fed,
		Rows: b.filled != nil}
	if was.Count > 0 {
		b.buffers.Grown++
	}
	for i := range b.g.layout.caches {
		if c := &b.g.layout.caches[i]; c.isBuffer() {
			if err := b.exchange(c, room); err != nil {
				return fmt.Errorf("cannot make a cache of %d tokens: %w", room, err)
			}
		}
	}
	return nil
}

// exchange binds a buffer of so many slots to the past and present of a cache, with what was in the one before.
func (b *batch) exchange(c *cache, room int) (err error) {
	dims := c.shape(b.rows())
	dims[c.sequence] = int64(room)
	v, err := b.g.session.Allocate(c.past.name, dims)
	if err != nil {
		return err
	}
	old := b.held[c.past.name]
	if old != nil && b.past > 0 {
		err = copySlots(v, old, c.sequence)
	}
	err = errors.Join(err, b.binding.InputValue(c.past.name, v), b.binding.OutputValue(c.present, v))
	if err != nil {
		return errors.Join(err, v.Close())
	}
	b.held[c.past.name] = v
	b.buffers.Count++
	b.buffers.Bytes += (&onnx.Tensor{DataType: v.DataType, Dims: dims}).Size()
	if old != nil {
		return old.Close()
	}
	return nil
}

// copySlots copies a cache to the front of a longer one.
func copySlots(to, from *ort.Value, axis int) error {
	t, err := from.Tensor()
	if err != nil {
		return err
	}
	if t, err = t.Lengthened(axis, to.Dims[axis]); err != nil {
		return err
	}
	return to.Write(t)
}
