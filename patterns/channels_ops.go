package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// input traces the last axes of a node's input, and gives their sizes.
func (t *tracer) input(v *onnx.Value, axes int) (c []channel, dims []int) {
	if v == nil {
		return nil, nil
	}
	dims, _, ok := t.dims(block{v, axes})
	if !ok {
		return nil, nil
	}
	return t.trace(v, axes), dims
}

func (t *tracer) concat(inputs []*onnx.Value, axis int64, b block, dims []int) []channel {
	place, ok := t.axis(b.v, axis, b.axes)
	if !ok {
		return nil
	}
	parts := make([][]channel, len(inputs))
	for i, in := range inputs {
		if parts[i], _ = t.input(in, b.axes); parts[i] == nil {
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
func (t *tracer) sequence(n *onnx.Node, b block, dims []int) []channel {
	list, inputs := sequenceOf(n)
	if list == nil {
		return nil
	}
	if n.AttrInt("new_axis", 0) == 0 {
		return t.concat(inputs, n.AttrInt("axis", 0), b, dims)
	}
	place, ok := t.axis(b.v, n.AttrInt("axis", 0), b.axes)
	if !ok || dims[place] != len(inputs) {
		return nil
	}
	parts := make([][]channel, len(inputs))
	for i, in := range inputs {
		if parts[i], _ = t.input(in, b.axes-1); parts[i] == nil {
			return nil
		}
	}
	return joined(parts, dims[:place])
}

// sequenceOf returns the node that makes the sequence that n joins, nil for other nodes, and the tensors that n reads through it.
func sequenceOf(n *onnx.Node) (list *onnx.Node, inputs []*onnx.Value) {
	if list = producer(n.Input(0)); n.Is("ConcatFromSequence") && list.Is("SequenceConstruct") {
		return list, list.Inputs
	}
	return nil, n.Inputs
}

func (t *tracer) split(n *onnx.Node, b block, dims []int) []channel {
	place, ok := t.axis(n.Input(0), n.AttrInt("axis", 0), b.axes)
	if !ok {
		return nil
	}
	start := 0
	for _, v := range n.Outputs[:b.v.Output] {
		if v == nil { // an unread output: its size is not a value's
			return t.splitBySizes(n, b, dims, place)
		}
		d, _, ok := t.dims(block{v, b.axes})
		if !ok {
			return nil
		}
		start += d[place]
	}
	return t.shifted(n.Input(0), b.axes, dims, place, start)
}

// splitBySizes is split where outputs are omitted: the sizes are those the node names, or equal ones.
func (t *tracer) splitBySizes(n *onnx.Node, b block, dims []int, place int) []channel {
	sizes := n.AttrInts("split")
	if v := n.Input(1); v != nil {
		sizes, _ = t.g.ints(v)
	}
	start := b.v.Output * dims[place]
	if len(sizes) > b.v.Output {
		start = 0
		for _, s := range sizes[:b.v.Output] {
			start += int(s)
		}
	} else if n.Input(1) != nil {
		return nil
	}
	return t.shifted(n.Input(0), b.axes, dims, place, start)
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
	at, stride := make([][]int, len(dims)), strides(sizes)
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

func (t *tracer) slice(n *onnx.Node, b block, dims []int) []channel {
	in := n.Input(0)
	source, sizes := t.input(in, b.axes)
	starts, axes, steps, ok := t.g.sliceOf(n)
	if source == nil || !ok {
		return nil
	}
	start, step := make([]int, b.axes), make([]int, b.axes)
	for i := range step {
		step[i] = 1
	}
	for i, axis := range axes {
		place, ok := t.axis(in, axis, b.axes)
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

func (t *tracer) gather(n *onnx.Node, b block) []channel {
	in, indices := n.Input(0), n.Input(1)
	c, ok := t.g.facts.Constant(indices)
	if !ok || c.I == nil || len(c.Shape) > b.axes {
		return nil
	}
	axes := b.axes - len(c.Shape) + 1 // the axes of the indices stand in place of the one that is gathered
	place, ok := t.axis(in, n.AttrInt("axis", 0), axes)
	if !ok {
		return nil
	}
	source, sizes := t.input(in, axes)
	if source == nil {
		return nil
	}
	var at [][]int
	for k, stride := range strides(sizes) {
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

// sliceOf reads the starts, axes and steps of a Slice, in the attribute form of opset 1 or the input form of opset 10.
func (g *graphView) sliceOf(n *onnx.Node) (starts, axes, steps []int64, ok bool) {
	list := func(name string, input int) ([]int64, bool) {
		if v := n.Input(input); v != nil {
			return g.ints(v)
		}
		return n.AttrInts(name), true
	}
	starts, ok1 := list("starts", 1)
	axes, ok2 := list("axes", 3)
	steps, ok3 := list("steps", 4)
	for i := range starts {
		if n.Input(3) == nil && n.Attr("axes") == nil {
			axes = append(axes, int64(i))
		}
		if n.Input(4) == nil && n.Attr("steps") == nil {
			steps = append(steps, 1)
		}
	}
	return starts, axes, steps, ok1 && ok2 && ok3 && len(starts) > 0 && len(axes) == len(starts) && len(steps) == len(starts)
}
