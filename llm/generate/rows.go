package generate

import (
	"context"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// byRows reports whether the model is given the number of buffered tokens of each sequence. Then sequences need no
// padding before them: the next tokens overwrite the slots after a shorter one.
func (l *layout) byRows() bool {
	return slices.ContainsFunc(l.others, func(p port) bool {
		return p.role == roles.PastLength && len(p.dims) == 1 && p.dims[0].Value != 1
	}) && slices.ContainsFunc(l.caches, func(c cache) bool { return c.isBuffer() })
}

// advanceRows is advance for sequences of different lengths. With pieces, shorter sequences start later, so that all
// end with the last piece, whose logits are read. If the model returns only the logits of the last slot, and shorter
// sequences have unused slots after them, the last piece is one token of each.
func (b *batch) advanceRows(ctx context.Context, chunk int) error {
	kept := 0
	if (b.g.layout.lastAlone() || b.sampled != nil) && !b.alikeLeft() {
		kept = 1
	}
	for {
		most := 0
		for i := range b.sequences {
			most = max(most, b.unseen(i)-kept)
		}
		if most == 0 && kept == 0 {
			return nil
		}
		if most == 0 {
			kept = 0
			continue
		}
		fresh := most
		if chunk > 0 {
			fresh = min(fresh, chunk)
		}
		starts, taken := slices.Clone(b.filled), make([]int, len(b.sequences))
		for i := range b.sequences {
			rest := b.unseen(i) - kept
			taken[i] = rest - min(rest, most-fresh)
		}
		if err := b.run(ctx, starts, fresh); err != nil {
			return err
		}
		for i := range taken {
			b.filled[i] += taken[i]
			b.past = max(b.past, b.filled[i])
		}
	}
}

// unseen returns the number of tokens of a sequence that the model has not seen.
func (b *batch) unseen(i int) int { return len(b.sequences[i]) - b.filled[i] }

// alikeLeft reports whether all sequences have the same number of unseen tokens.
func (b *batch) alikeLeft() bool {
	for i := range b.sequences {
		if b.unseen(i) != b.unseen(0) {
			return false
		}
	}
	return true
}

// lastAlone reports whether the graph returns only the logits of each sequence's last slot.
func (l *layout) lastAlone() bool {
	switch rank := len(l.logits.dims); rank {
	case 3:
		return l.logits.dims[1].Value == 1
	case 2:
		return len(l.ids.dims) == 2
	}
	return false
}
