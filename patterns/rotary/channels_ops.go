package rotary

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// input traces the last axes of a node's input, and returns their sizes.
func (t *tracer) input(v *onnx.Value, axes int) (c []channel, dims []int) {
	if v == nil {
		return nil, nil
	}
	dims, _, ok := t.dims(match.Block{Value: v, Axes: axes})
	if !ok {
		return nil, nil
	}
	return t.trace(v, axes), dims
}

// within reports whether a node moves elements only along the axes of a block, and how many last axes of its inputs
// make up the block.
func (t *tracer) within(n *onnx.Node, b match.Block) (axes int, ok bool) {
	in, axis := n.Input(0), n.AttrInt("axis", 0)
	switch n.OpType {
	case "Concat", "ConcatFromSequence":
		_, ok = t.axis(b.Value, axis, b.Axes)
		return b.Axes - int(n.AttrInt("new_axis", 0)), ok
	case "Gather": // the axes of the indices replace the gathered axis
		indices, known := t.g.Facts.Rank(n.Input(1))
		axes = b.Axes - indices + 1
		_, ok = t.axis(in, axis, axes)
		return axes, ok && known
	case "Slice":
		_, sliced, _, known := t.g.SliceOf(n)
		return b.Axes, known && !slices.ContainsFunc(sliced, func(axis int64) bool {
			_, ok := t.axis(in, axis, b.Axes)
			return !ok
		})
	case "Transpose":
		perm := n.AttrInts("perm")
		for i := range max(len(perm)-b.Axes, 0) {
			if perm[i] != int64(i) {
				return 0, false
			}
		}
		return b.Axes, len(perm) >= b.Axes
	}
	_, ok = t.axis(in, axis, b.Axes)
	return b.Axes, ok
}

// signed returns the index of the operand that a node negates, as a whole or in part by constants 1 and -1; -1 for
// other nodes.
func (t *tracer) signed(n *onnx.Node) int {
	all := func(i int, numbers ...float64) bool {
		c, ok := t.g.Facts.Constant(n.Input(i))
		other := func(x float64) bool { return !slices.Contains(numbers, x) }
		return ok && c.F != nil && !slices.ContainsFunc(c.F, other)
	}
	switch {
	case n.Is("Neg"), (n.Is("Mul") || n.Is("Div")) && all(1, 1, -1):
		return 0
	case n.Is("Mul") && all(0, 1, -1), n.Is("Sub") && all(0, 0):
		return 1
	}
	return -1
}

// evaluated runs a node on the numbers of channels, negative if their sign is. The inputs are blocks of axes last axes
// with one row: the given input, or all inputs if it is -1.
func (t *tracer) evaluated(n *onnx.Node, b match.Block, dims []int, axes, input int) []channel {
	list, inputs := sequenceOf(n)
	in := make([]*reference.Tensor, len(inputs))
	for i, v := range inputs {
		if input >= 0 && i != input {
			if c, ok := t.g.Facts.Constant(v); ok && c.F != nil {
				in[i] = reference.NewFloats(onnx.Double, c.Shape, c.F)
			} else if ok {
				in[i] = c
			}
			continue
		}
		rank, _ := t.g.Facts.Rank(v)
		c, sizes := t.input(v, min(axes, rank))
		if c == nil {
			return nil
		}
		numbers := make([]float64, len(c))
		for k, c := range c {
			numbers[k] = c.sign * float64(c.origin*maxChannels+c.index+1)
		}
		in[i] = reference.NewFloats(onnx.Double, append(slices.Repeat([]int{1}, max(rank-axes, 0)), sizes...), numbers)
	}
	e := reference.NewForOpset(t.g.Facts.Opset(), nil, reference.Options{Exact: true})
	var err error
	if list != nil {
		if in, err = e.Op(list, in); err != nil {
			return nil
		}
	}
	out, err := e.Op(n, in)
	if err != nil || len(out) <= b.Value.Output {
		return nil
	}
	made := out[b.Value.Output]
	if rows := made.Rank() - len(dims); rows < 0 || made.Len() != match.Elements(dims) ||
		!slices.Equal(made.Shape[rows:], dims) {
		return nil
	}
	c := make([]channel, len(made.F))
	for i, x := range made.F {
		number := int(math.Abs(x)) - 1
		c[i] = channel{number / maxChannels, number % maxChannels, math.Copysign(1, x)}
	}
	return c
}

// sequenceOf returns the node that makes the sequence that n joins, nil for other nodes, and the tensors that n reads
// through it.
func sequenceOf(n *onnx.Node) (list *onnx.Node, inputs []*onnx.Value) {
	if list = match.Producer(n.Input(0)); n.Is("ConcatFromSequence") && list.Is("SequenceConstruct") {
		return list, list.Inputs
	}
	return nil, n.Inputs
}
