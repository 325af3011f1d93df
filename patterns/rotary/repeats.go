package rotary

import (
	"bytes"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// maxRepeats bounds the values that Repeats visits.
const maxRepeats = 64

// elementwise lists the ops of one operand that return equal numbers for equal ones.
var elementwise = onnx.Words("Cos Sin Cast CastLike Neg Identity")

// sidewise lists such ops of two operands.
var sidewise = onnx.Words("Mul Div Add Sub Pow")

// Repeats reports whether the last axis of v is known to hold every element twice: in two equal halves or, with
// neighbors, each beside its double. Tables of cosines and sines are often written so.
func Repeats(g *match.View, v *onnx.Value, neighbors bool) bool {
	left := maxRepeats
	var holds func(v *onnx.Value) bool
	holds = func(v *onnx.Value) bool {
		if left--; left < 0 {
			return false
		}
		t := newTracer(g)
		c := t.trace(v, 1)
		if len(c) == 0 || len(c)%2 != 0 {
			return false
		}
		if repeats(c, neighbors) {
			return true
		}
		o := t.origins[c[0].origin]
		if o.Axes != 1 || !inOrder(c) || len(t.blocks[o]) != len(c) {
			return false
		}
		if k := o.Value.Constant(); k != nil {
			return rowsRepeat(k, len(c), neighbors)
		}
		n := o.Value.Producer
		if n == nil || !onnx.IsStandardDomain(n.Domain) {
			return false
		}
		switch {
		case elementwise[n.OpType]:
			return holds(n.Input(0))
		case sidewise[n.OpType]:
			all := true
			for _, in := range n.Inputs {
				all = all && (oneChannel(g, in) || holds(in))
			}
			return all
		}
		return movesRows(g, n, len(c)) && holds(n.Input(0))
	}
	return holds(v)
}

// movesRows reports whether a node passes on rows of its first input, each of the given channels, unchanged.
func movesRows(g *match.View, n *onnx.Node, channels int) bool {
	rank, ok := g.Facts.Rank(n.Input(0))
	d, known := g.Facts.Dim(n.Input(0), -1)
	if !ok || rank == 0 || !known || d != int64(channels) {
		return false
	}
	switch n.OpType {
	case "Gather":
		axis := n.AttrInt("axis", 0)
		return axis != -1 && axis != int64(rank-1)
	case "Transpose":
		perm := n.AttrInts("perm")
		return len(perm) == rank && perm[rank-1] == int64(rank-1)
	case "Slice", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Flatten": // the width is unchanged
		return true
	}
	return false
}

// oneChannel reports whether v is a scalar or its last axis has size 1.
func oneChannel(g *match.View, v *onnx.Value) bool {
	rank, ok := g.Facts.Rank(v)
	if !ok {
		return false
	}
	d, known := g.Facts.Dim(v, -1)
	return rank == 0 || known && d == 1
}

// inOrder reports whether the channels are those of one origin, in order.
func inOrder(c []channel) bool {
	for i := range c {
		if c[i].origin != c[0].origin || c[i].index != i || c[i].sign != c[0].sign {
			return false
		}
	}
	return true
}

// repeats reports whether a list holds every element twice.
func repeats[T comparable](c []T, neighbors bool) bool {
	if !neighbors {
		return slices.Equal(c[:len(c)/2], c[len(c)/2:])
	}
	for i := 0; i < len(c); i += 2 {
		if c[i] != c[i+1] {
			return false
		}
	}
	return true
}

// rowsRepeat reports whether a constant repeats, in rows of the given channels.
func rowsRepeat(t *onnx.Tensor, channels int, neighbors bool) bool {
	b, err := t.Bytes()
	n := t.Len()
	if err != nil || n <= 0 || int64(len(b))%n != 0 || n%int64(channels) != 0 {
		return false
	}
	size := int(int64(len(b)) / n)
	for row := range slices.Chunk(b, channels*size) {
		if neighbors {
			for pair := range slices.Chunk(row, 2*size) {
				if !bytes.Equal(pair[:size], pair[size:]) {
					return false
				}
			}
		} else if !bytes.Equal(row[:len(row)/2], row[len(row)/2:]) {
			return false
		}
	}
	return size > 0
}
