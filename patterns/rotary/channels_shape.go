package rotary

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// reshape keeps the order of channels if the axes before the block are the same in the input.
func (t *tracer) reshape(n *onnx.Node, b match.Block) []channel {
	in := n.Input(0)
	_, want, _ := t.dims(b)
	rank, ok := t.g.Facts.Rank(in)
	if !ok {
		return nil
	}
	for axes := 0; axes <= rank; axes++ {
		if _, have, ok := t.dims(match.Block{Value: in, Axes: axes}); ok && have == want &&
			t.g.SameRows(b, match.Block{Value: in, Axes: axes}) {
			return t.trace(in, axes)
		}
	}
	return nil
}

// repeat traces Expand and Tile within a block. If they repeat rows, it returns nil.
func (t *tracer) repeat(n *onnx.Node, b match.Block, dims []int) []channel {
	in := n.Input(0)
	inRank, ok1 := t.g.Facts.Rank(in)
	outRank, ok2 := t.g.Facts.Rank(b.Value)
	axes := b.Axes - (outRank - inRank) // Expand adds axes in front
	if !ok1 || !ok2 || axes < 0 || axes < b.Axes && axes != inRank || axes == b.Axes &&
		!t.g.SameRows(b, match.Block{Value: in, Axes: axes}) {
		return nil
	}
	source, sizes := t.input(in, axes)
	if source == nil {
		return nil
	}
	return repeated(source, dims, sizes)
}

// operand traces an operand of an elementwise op and broadcasts it to a block of these dimensions.
func (t *tracer) operand(v *onnx.Value, dims []int) []channel {
	rank, ok := t.g.Facts.Rank(v)
	if !ok {
		return nil
	}
	source, sizes := t.input(v, min(rank, len(dims)))
	if source == nil {
		return nil
	}
	return repeated(source, dims, sizes)
}

// repeated broadcasts or repeats a block to these dimensions.
func repeated(source []channel, dims, sizes []int) []channel {
	c := make([]channel, match.Elements(dims))
	missing := len(dims) - len(sizes)
	if missing < 0 {
		return nil // the shapes of the graph contradict each other
	}
	steps, strides := onnx.RowMajor(dims), onnx.RowMajor(sizes)
	for i := range c {
		from := 0
		for k, size := range sizes {
			from += i / steps[missing+k] % dims[missing+k] % size * strides[k]
		}
		c[i] = source[from]
	}
	return c
}
