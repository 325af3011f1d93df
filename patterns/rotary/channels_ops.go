package rotary

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
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

func (t *tracer) concat(inputs []*onnx.Value, axis int64, b match.Block, dims []int) []channel {
	place, ok := t.axis(b.Value, axis, b.Axes)
	if !ok {
		return nil
	}
	parts := make([][]channel, len(inputs))
	for i, in := range inputs {
		if parts[i], _ = t.input(in, b.Axes); parts[i] == nil {
			return nil
		}
	}
	return joined(parts, dims[:place])
}

// joined concatenates blocks behind the axes of sizes outer.
func joined(parts [][]channel, sizes []int) []channel {
	outer := 1
	for _, d := range sizes {
		outer *= d
	}
	var c []channel
	for i := range outer {
		for _, part := range parts {
			n := len(part) / outer
			c = append(c, part[i*n:(i+1)*n]...)
		}
	}
	return c
}

// sequence is for the concatenation, or the stacking on a new axis, of a sequence that is made on the spot.
func (t *tracer) sequence(n *onnx.Node, b match.Block, dims []int) []channel {
	list, inputs := sequenceOf(n)
	if list == nil {
		return nil
	}
	if n.AttrInt("new_axis", 0) == 0 {
		return t.concat(inputs, n.AttrInt("axis", 0), b, dims)
	}
	place, ok := t.axis(b.Value, n.AttrInt("axis", 0), b.Axes)
	if !ok || dims[place] != len(inputs) {
		return nil
	}
	parts := make([][]channel, len(inputs))
	for i, in := range inputs {
		if parts[i], _ = t.input(in, b.Axes-1); parts[i] == nil {
			return nil
		}
	}
	return joined(parts, dims[:place])
}

// sequenceOf returns the node that makes the sequence that n joins, nil for other nodes, and the tensors that n reads
// through it.
func sequenceOf(n *onnx.Node) (list *onnx.Node, inputs []*onnx.Value) {
	if list = match.Producer(n.Input(0)); n.Is("ConcatFromSequence") && list.Is("SequenceConstruct") {
		return list, list.Inputs
	}
	return nil, n.Inputs
}

func (t *tracer) split(n *onnx.Node, b match.Block, dims []int) []channel {
	place, ok := t.axis(n.Input(0), n.AttrInt("axis", 0), b.Axes)
	if !ok {
		return nil
	}
	start := 0
	for _, v := range n.Outputs[:b.Value.Output] {
		if v == nil { // an unread output: its size is not a value's
			return t.splitBySizes(n, b, dims, place)
		}
		d, _, ok := t.dims(match.Block{Value: v, Axes: b.Axes})
		if !ok {
			return nil
		}
		start += d[place]
	}
	return t.shifted(n.Input(0), b.Axes, dims, place, start)
}

// splitBySizes is split where outputs are omitted: the sizes are those the node names, or equal ones.
func (t *tracer) splitBySizes(n *onnx.Node, b match.Block, dims []int, place int) []channel {
	sizes := n.AttrInts("split")
	if v := n.Input(1); v != nil {
		sizes, _ = t.g.Ints(v)
	}
	start := b.Value.Output * dims[place]
	if len(sizes) > b.Value.Output {
		start = 0
		for _, s := range sizes[:b.Value.Output] {
			start += int(s)
		}
	} else if n.Input(1) != nil {
		return nil
	}
	return t.shifted(n.Input(0), b.Axes, dims, place, start)
}

func (t *tracer) shifted(in *onnx.Value, axes int, dims []int, place, start int) []channel {
	source, sizes := t.input(in, axes)
	if source == nil {
		return nil
	}
	from := make([]int, axes)
	from[place] = start
	return moved(source, dims, sizes, from, nil)
}

// moved makes a block of the places from, from+by, … of each axis of another one; by is 1 where it is nil.
func moved(source []channel, dims, sizes, from, by []int) []channel {
	at, stride := make([][]int, len(dims)), onnx.RowMajor(sizes)
	for k, n := range dims {
		step := 1
		if by != nil {
			step = by[k]
		}
		if at[k] = steps(n, from[k], step, sizes[k], stride[k]); at[k] == nil {
			return nil
		}
	}
	return pickChannels(source, at)
}

func (t *tracer) slice(n *onnx.Node, b match.Block, dims []int) []channel {
	in := n.Input(0)
	source, sizes := t.input(in, b.Axes)
	starts, axes, steps, ok := t.g.SliceOf(n)
	if source == nil || !ok {
		return nil
	}
	start, step := make([]int, b.Axes), make([]int, b.Axes)
	for i := range step {
		step[i] = 1
	}
	for i, axis := range axes {
		place, ok := t.axis(in, axis, b.Axes)
		if !ok {
			return nil
		}
		size := int64(sizes[place])
		s := starts[i]
		if s < 0 {
			s += size
		}
		top := size // a negative step may start at the last element, a positive one behind it
		if steps[i] < 0 {
			top = size - 1
		}
		start[place], step[place] = int(min(max(s, 0), top)), int(steps[i])
	}
	return moved(source, dims, sizes, start, step)
}

func (t *tracer) gather(n *onnx.Node, b match.Block) []channel {
	in, indices := n.Input(0), n.Input(1)
	c, ok := t.g.Facts.Constant(indices)
	if !ok || c.I == nil || len(c.Shape) > b.Axes {
		return nil
	}
	axes := b.Axes - len(c.Shape) + 1 // the axes of the indices stand in place of the one that is gathered
	place, ok := t.axis(in, n.AttrInt("axis", 0), axes)
	if !ok {
		return nil
	}
	source, sizes := t.input(in, axes)
	if source == nil {
		return nil
	}
	var at [][]int
	for k, stride := range onnx.RowMajor(sizes) {
		if k != place {
			at = append(at, steps(sizes[k], 0, 1, sizes[k], stride))
			continue
		}
		list := make([]int, len(c.I))
		for i, index := range c.I {
			if index < 0 {
				index += int64(sizes[k])
			}
			if index < 0 || index >= int64(sizes[k]) {
				return nil
			}
			list[i] = int(index) * stride
		}
		at = append(at, list)
	}
	return pickChannels(source, at)
}
