package pagedcache

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A sequence may give up blocks before the window of all layers that read them. So these have a table of their own.

// findWindowed finds the pools that only layers with a window read, and reports whether there are others too.
func (c *Change) findWindowed() bool {
	whole := map[*onnx.Value]bool{}
	c.windowed = map[*onnx.Value]bool{}
	for _, s := range c.sites {
		w := fused.Read[fused.Attention](s.node.Attributes).Window
		c.report.Window = max(c.report.Window, w)
		for _, past := range s.past {
			whole[past], c.windowed[past] = whole[past] || w == 0, true
		}
	}
	for past := range whole {
		if whole[past] {
			delete(c.windowed, past)
		}
	}
	return len(c.windowed) > 0 && len(c.windowed) < len(whole)
}

// blocksOf names the number of blocks of a pool.
func (c *Change) blocksOf(pool *onnx.Value) string {
	if c.windowed[pool] && c.rings != c.table {
		return "windowed_blocks"
	}
	return "blocks"
}

// ringOf returns a row of the second table for a row of the trial's: other blocks, and junk before the window.
func (c *Change) ringOf(row []int64, past int) (ring []int64) {
	for i, b := range row {
		if b >= 0 && int64((i+1)*blockTried) <= int64(past)-c.report.Window+1 {
			b = int64(blocksTried[len(blocksTried)-1])
		}
		if b >= 0 && c.rings != c.table {
			b = int64(len(blocksTried)) - 1 - b
		}
		ring = append(ring, b)
	}
	return ring
}
