package patterns

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

const (
	// maxChannels bounds the channels that are followed by default: the head sizes of attention are smaller.
	maxChannels = 1024
	// maxTraced bounds the blocks that one tracer visits.
	maxTraced = 256
)

// block is the last axes of a value, taken as one list of channels in row-major order. The axes before them are its rows.
type block struct {
	v    *onnx.Value
	axes int
}

// channel is one element of an origin, or its negative.
type channel struct {
	origin int // in tracer.origins
	index  int
	sign   float64
}

// tracer follows the channels of values back through the ops that only move them about: slices, splits, concatenations,
// reshapes, transpositions, gathers with constant indices, repetitions and changes of sign. However an exporter
// spells "the second half, negated, before the first one", what remains is a list of channels.
//
// Rows are never touched: an op that moves or reshapes them ends the way, and so does one that computes. Such a block is an
// origin.
type tracer struct {
	g       *graphView
	max     int // of the channels of a block that are followed
	origins []block
	blocks  map[block][]channel
	order   []block // the blocks in the order they were reached

	products map[int][2][]channel // the operands of origins that a Mul makes
	computed map[int]bool         // the origins that are sums and products of others
}

func newTracer(g *graphView) *tracer {
	return &tracer{g: g, max: maxChannels, blocks: map[block][]channel{}, products: map[int][2][]channel{}, computed: map[int]bool{}}
}

// dims returns the sizes of the axes of a block and the number of its channels; ok is false when they are unknown or too many.
func (t *tracer) dims(b block) (dims []int, n int, ok bool) {
	rank, known := t.g.facts.Rank(b.v)
	if !known || rank < b.axes {
		return nil, 0, false
	}
	n = 1
	dims = make([]int, b.axes)
	for i := range dims {
		d, ok := t.g.facts.Dim(b.v, i-b.axes)
		if !ok || d < 1 || d > int64(t.max) || n*int(d) > t.max {
			return nil, 0, false
		}
		dims[i] = int(d)
		n *= int(d)
	}
	return dims, n, true
}

// trace returns the channels of the last axes of v; nil when their number is unknown or too great.
func (t *tracer) trace(v *onnx.Value, axes int) []channel {
	b := block{t.g.resolve(v), axes}
	if c, ok := t.blocks[b]; ok {
		return c
	}
	dims, n, ok := t.dims(b)
	if !ok {
		return nil
	}
	t.blocks[b] = nil // while it is worked on
	t.order = append(t.order, b)
	var c []channel
	if len(t.order) < maxTraced {
		c = t.moved(b, dims)
	}
	if c == nil {
		c = t.origin(b, n)
	}
	t.blocks[b] = c
	return c
}

// origin makes the block one that channels come from. Equal computations are one origin.
func (t *tracer) origin(b block, n int) []channel {
	k := slices.IndexFunc(t.origins, func(o block) bool {
		return o.axes == b.axes && (o.v == b.v || t.g.alike(o.v, b.v) || isConstant(o.v) && isConstant(b.v) && t.g.same(o.v, b.v))
	})
	if k < 0 {
		k = len(t.origins)
		t.origins = append(t.origins, b)
	}
	c := make([]channel, n)
	for i := range c {
		c[i] = channel{k, i, 1}
	}
	return c
}

func isConstant(v *onnx.Value) bool { return v.Constant() != nil }

// moved returns the channels of a block whose node moves channels about; nil for other nodes.
func (t *tracer) moved(b block, dims []int) []channel {
	n := b.v.Producer
	if n == nil || !onnx.IsStandardDomain(n.Domain) || b.v.Constant() != nil {
		return nil
	}
	switch n.OpType {
	case "Cast": // to a wider type: the numbers are the same
		if widens(t.g.facts.DataType(n.Input(0)), t.g.facts.DataType(b.v)) {
			c, _ := t.input(n.Input(0), b.axes)
			return c
		}
	case "Concat":
		return t.concat(n.Inputs, n.AttrInt("axis", 0), b, dims)
	case "ConcatFromSequence":
		return t.sequence(n, b, dims)
	case "Split":
		return t.split(n, b, dims)
	case "Slice":
		return t.slice(n, b, dims)
	case "Gather":
		return t.gather(n, b)
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		return t.reshape(n, b)
	case "Transpose":
		return t.transpose(n, b)
	case "Expand", "Tile":
		return t.repeat(n, b, dims)
	case "Neg", "Mul", "Div", "Sub":
		return t.signed(n, dims)
	}
	return nil
}

// axis returns the place of an axis of the node's first input among the last axes of a block; ok is false when it lies before them.
func (t *tracer) axis(in *onnx.Value, axis int64, axes int) (place int, ok bool) {
	rank, known := t.g.facts.Rank(in)
	if axis < 0 {
		axis += int64(rank)
	}
	place = int(axis) - (rank - axes)
	return place, known && place >= 0 && place < axes
}

// pickChannels makes a block of channels of another one: at[k][i] is what place i of axis k adds to the index there.
func pickChannels(source []channel, at [][]int) []channel {
	index := []int{0}
	for _, steps := range at {
		next := make([]int, 0, len(index)*len(steps))
		for _, i := range index {
			for _, step := range steps {
				next = append(next, i+step)
			}
		}
		index = next
	}
	c := make([]channel, len(index))
	for i, k := range index {
		if k >= len(source) {
			return nil // a graph whose shapes contradict each other
		}
		c[i] = source[k]
	}
	return c
}

// steps lists what the places from, from+by, … of an axis add to an index; nil when one lies outside the axis.
func steps(n, from, by, size, stride int) []int {
	list := make([]int, n)
	for i := range list {
		k := from + i*by
		if k < 0 || k >= size {
			return nil
		}
		list[i] = k * stride
	}
	return list
}

// strides returns what one place of each axis adds to an index.
func strides(sizes []int) []int {
	s := make([]int, len(sizes))
	for k, n := len(sizes)-1, 1; k >= 0; k-- {
		s[k] = n
		n *= sizes[k]
	}
	return s
}

// byAxes lists the blocks that can be an operand in the order they were reached, those of one axis first: others have to be
// reshaped.
func (t *tracer) byAxes() []block {
	list := slices.DeleteFunc(slices.Clone(t.order), func(b block) bool { return b.axes == 0 })
	slices.SortStableFunc(list, func(a, b block) int { return cmp.Compare(a.axes, b.axes) })
	return list
}

// reached reports whether channels of v were asked for.
func (t *tracer) reached(v *onnx.Value) bool {
	return slices.ContainsFunc(t.order, func(b block) bool { return b.v == v })
}

// rowsBroadcast reports whether the rows of a broadcast to those of b.
func (t *tracer) rowsBroadcast(a, b block) bool {
	for w := range worlds {
		s, ok1 := t.g.facts.Shape(a.v, w)
		r, ok2 := t.g.facts.Shape(b.v, w)
		if !ok1 || !ok2 || len(s) < a.axes || len(r) < b.axes || !shapeBroadcasts(s[:len(s)-a.axes], r[:len(r)-b.axes]) {
			return false
		}
	}
	return true
}

// shapeBroadcasts reports whether shape a broadcasts to shape b without enlarging it.
func shapeBroadcasts(a, b []int64) bool {
	if len(a) > len(b) {
		return false
	}
	for i, d := range b[len(b)-len(a):] {
		if a[i] != d && a[i] != 1 {
			return false
		}
	}
	return true
}
