package rotary

import (
	"bytes"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// maxRepeats is how many values repeats looks at.
const maxRepeats = 64

// elementwise lists the ops of one operand that give equal numbers for equal ones.
var elementwise = map[string]bool{
	"Cos": true, "Sin": true, "Cast": true, "CastLike": true, "Neg": true, "Identity": true,
}

// sidewise lists the ops of two operands that do.
var sidewise = map[string]bool{"Mul": true, "Div": true, "Add": true, "Sub": true, "Pow": true}

// Repeats reports whether the last axis of v is known to hold everything twice: its second half is the first one
// again, or, by neighbours, every other element is the one before it. Tables of cosines and sines are often written
// so.
func Repeats(g *match.View, v *onnx.Value, neighbours bool) bool {
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
		if repeats(c, neighbours) {
			return true
		}
		o := t.origins[c[0].origin]
		if o.Axes != 1 || !inOrder(c) || len(t.blocks[o]) != len(c) {
			return false
		}
		if k := o.Value.Constant(); k != nil {
			return rowsRepeat(k, len(c), neighbours)
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

// movesRows reports whether a node hands on rows of its first input, each of so many channels, as they are.
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
	case "Slice", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Flatten": // as wide as they were
		return true
	}
	return false
}

// oneChannel reports whether v has no last axis of more than one element.
func oneChannel(g *match.View, v *onnx.Value) bool {
	rank, ok := g.Facts.Rank(v)
	if !ok {
		return false
	}
	d, known := g.Facts.Dim(v, -1)
	return rank == 0 || known && d == 1
}

// inOrder reports whether the channels are those of one origin, in their order.
func inOrder(c []channel) bool {
	for i := range c {
		if c[i].origin != c[0].origin || c[i].index != i || c[i].sign != c[0].sign {
			return false
		}
	}
	return true
}

// repeats reports whether a list holds the same twice.
func repeats[T comparable](c []T, neighbours bool) bool {
	if !neighbours {
		return slices.Equal(c[:len(c)/2], c[len(c)/2:])
	}
	for i := 0; i < len(c); i += 2 {
		if c[i] != c[i+1] {
			return false
		}
	}
	return true
}

// rowsRepeat looks at the elements of a constant, in rows of so many channels.
func rowsRepeat(t *onnx.Tensor, channels int, neighbours bool) bool {
	b, err := t.Bytes()
	n := t.Len()
	if err != nil || n <= 0 || int64(len(b))%n != 0 || n%int64(channels) != 0 {
		return false
	}
	size := int(int64(len(b)) / n)
	for row := range slices.Chunk(b, channels*size) {
		if neighbours {
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
