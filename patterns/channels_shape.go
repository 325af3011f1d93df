package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// reshape keeps the channels in order where the axes before the block are those of the input.
func (t *tracer) reshape(n *onnx.Node, b block) []channel {
	in := n.Input(0)
	_, want, _ := t.dims(b)
	rank, ok := t.g.facts.Rank(in)
	if !ok {
		return nil
	}
	for axes := 0; axes <= rank; axes++ {
		if _, have, ok := t.dims(block{in, axes}); ok && have == want && t.sameRows(b, block{in, axes}) {
			return t.trace(in, axes)
		}
	}
	return nil
}

// sameRows reports whether the axes before two blocks are the same.
func (t *tracer) sameRows(a, b block) bool {
	for w := range worlds {
		s, ok1 := t.g.facts.Shape(a.v, w)
		r, ok2 := t.g.facts.Shape(b.v, w)
		if !ok1 || !ok2 || len(s) < a.axes || len(r) < b.axes || !slices.Equal(s[:len(s)-a.axes], r[:len(r)-b.axes]) {
			return false
		}
	}
	return true
}

func (t *tracer) transpose(n *onnx.Node, b block) []channel {
	in := n.Input(0)
	perm := n.AttrInts("perm")
	rows := len(perm) - b.axes
	if rows < 0 {
		return nil
	}
	for i, p := range perm {
		if i < rows && p != int64(i) || p < 0 || p >= int64(len(perm)) {
			return nil
		}
	}
	source, sizes := t.input(in, b.axes)
	if source == nil {
		return nil
	}
	at, stride := make([][]int, b.axes), strides(sizes)
	for i, p := range perm[rows:] {
		k := int(p) - rows
		at[i] = steps(sizes[k], 0, 1, sizes[k], stride[k])
	}
	return pickChannels(source, at)
}

// repeat is for Expand and Tile within a block; where they repeat rows, the result is an origin.
func (t *tracer) repeat(n *onnx.Node, b block, dims []int) []channel {
	in := n.Input(0)
	inRank, ok1 := t.g.facts.Rank(in)
	outRank, ok2 := t.g.facts.Rank(b.v)
	axes := b.axes - (outRank - inRank) // Expand adds axes in front
	if !ok1 || !ok2 || axes < 0 || axes < b.axes && axes != inRank || axes == b.axes && !t.sameRows(b, block{in, axes}) {
		return nil
	}
	source, sizes := t.input(in, axes)
	if source == nil {
		return nil
	}
	return repeated(source, dims, sizes)
}

// repeated broadcasts a block, or repeats it, to these dimensions.
func repeated(source []channel, dims, sizes []int) []channel {
	at, stride := make([][]int, len(dims)), strides(sizes)
	missing := len(dims) - len(sizes)
	for k, n := range dims {
		at[k] = make([]int, n)
		if k < missing {
			continue
		}
		if n > 0 && (k-missing >= len(sizes) || sizes[k-missing] <= 0) {
			return nil
		}
		for i := range at[k] {
			at[k][i] = i % sizes[k-missing] * stride[k-missing]
		}
	}
	return pickChannels(source, at)
}
