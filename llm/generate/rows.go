package generate

import (
	"context"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// byRows reports whether the model is told how many tokens of each sequence are in its buffers. Then sequences need no
// padding before them: what stands behind a shorter one is overwritten by its next tokens.
func (l *layout) byRows() bool {
	return slices.ContainsFunc(l.others, func(p port) bool {
		return p.role == roles.PastLength && len(p.dims) == 1 && p.dims[0].Value != 1
	}) && slices.ContainsFunc(l.caches, func(c cache) bool { return c.isBuffer() })
}

// advanceRows is advance where each sequence has a length of its own. In pieces, shorter sequences begin later: all
// end with the last piece, behind which the logits of each are read.
func (b *batch) advanceRows(ctx context.Context, chunk int) error {
	for {
		most := 0
		for i, s := range b.sequences {
			most = max(most, len(s)-b.filled[i])
		}
		if most == 0 {
			return nil
		}
		fresh := most
		if chunk > 0 {
			fresh = min(fresh, chunk)
		}
		starts, taken := slices.Clone(b.filled), make([]int, len(b.sequences))
		for i, s := range b.sequences {
			rest := len(s) - b.filled[i]
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
