package generate

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// leastRoom is the initial number of slots of buffers whose length the graph leaves open.
const leastRoom = 256

// mostAhead bounds the number of future tokens that buffers reserve room for.
const mostAhead = 4096

// Buffers describes the key and value buffers of a run with a model that writes them in place.
type Buffers struct {
	Count int   `json:"count"` // 0: the model has no such buffers
	Slots int   `json:"slots"` // final slots per buffer: tokens and padding
	Bytes int64 `json:"bytes"` // of all buffers
	Grown int   `json:"grown"` // how often the buffers were replaced by larger ones
	Rows  bool  `json:"rows"`  // each sequence has its own number of tokens, without padding before it
	// Block is the number of tokens of a block, if the buffers are pools of blocks that all sequences share.
	Block int `json:"block,omitempty"`
	// Steps is the number of tokens per sequence decoded in fixed memory. If the session records CUDA graphs, each of
	// these steps ran as a graph.
	Steps int  `json:"steps"`
	Fed   bool `json:"fed"` // whether the model chose these tokens itself
}

// room returns the number of slots that the graph fixes for its buffers, 0 for any number, and the input that fixes it.
func (l *layout) room() (slots int, input string) {
	for _, c := range l.caches {
		if d := c.past.dims; c.isBuffer() && d[c.sequence].Value >= 0 {
			return int(d[c.sequence].Value), c.past.name
		}
	}
	return 0, ""
}

// makeRoom gives the buffers enough slots for all tokens of the batch. It doubles buffers of any length and keeps their
// content. It returns an error before the model runs if the graph fixes a length that is too small.
func (b *batch) makeRoom() error {
	slots := b.slots()
	if slots <= b.buffers.Slots || !b.g.layout.hasBuffers() {
		return nil
	}
	room, input := b.g.layout.room()
	if room > 0 && slots > room {
		return fmt.Errorf("the cache is too small: input %q holds %d tokens, but %d are needed with padding: patch "+
			"the model with a larger --cache static=M", input, room, slots)
	}
	if room == 0 {
		ahead := 0
		if b.g.steady { // replacing buffers costs a new recording
			ahead = min(b.most, mostAhead)
		}
		for room = max(leastRoom, b.buffers.Slots); room < slots+ahead; {
			room *= 2
		}
	}
	was := b.buffers
	if b.steps != nil { // for the old buffers
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

// exchange binds a buffer of room slots to the past and present of a cache, and copies the old content.
func (b *batch) exchange(c *cache, room int) error {
	dims := c.shape(b.rows())
	dims[c.sequence] = int64(room)
	return b.replace(c.past.name, c.present, dims, c.sequence, b.past > 0)
}

// replace binds a new value to a past and its present. If keep is set, it has the content of the old one at the start
// of this axis.
func (b *batch) replace(past, present string, dims []int64, axis int, keep bool) (err error) {
	v, err := b.g.session.Allocate(past, dims)
	if err != nil {
		return err
	}
	old := b.held[past]
	if old != nil && keep {
		err = copySlots(v, old, axis)
	}
	err = errors.Join(err, b.binding.InputValue(past, v), b.binding.OutputValue(present, v))
	if err != nil {
		return errors.Join(err, v.Close())
	}
	b.held[past] = v
	b.buffers.Count++
	b.buffers.Bytes += (&onnx.Tensor{DataType: v.DataType, Dims: dims}).Size()
	if old != nil {
		return old.Close()
	}
	return nil
}

// copySlots copies a cache to the start of a longer one.
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
