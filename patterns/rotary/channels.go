package rotary

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

const (
	// maxChannels bounds the channels that are followed: heads of attention are smaller.
	maxChannels = 1024
	// maxTraced bounds the blocks that one tracer visits.
	maxTraced = 256
)

// channel is one element of an origin, or its negative.
type channel struct {
	origin int // index into tracer.origins
	index  int
	sign   float64
}

// tracer follows the channels of values back through the ops that only move them: slices, splits, concatenations,
// reshapes, transpositions, gathers with constant indices, repetitions and changes of sign. If rows stay as they are,
// the evaluator runs the op on the numbers of the channels. However an exporter spells "the second half, negated,
// before the first one", the result is a list of channels.
//
// Ops that move or reshape rows, and ops that compute, are not followed. Their results are origins.
type tracer struct {
	g       *match.View
	origins []match.Block
	blocks  map[match.Block][]channel
	order   []match.Block // in the order they were reached

	products map[int][2][]channel // the operands of origins computed by a Mul
	computed map[int]bool         // the origins that are sums and products of others
}

// newTracer returns a tracer that has traced nothing yet.
func newTracer(g *match.View) *tracer {
	return &tracer{g: g, blocks: map[match.Block][]channel{}, products: map[int][2][]channel{},
		computed: map[int]bool{}}
}

// clone returns a tracer that continues from t.
func (t *tracer) clone() *tracer {
	return &tracer{g: t.g, origins: slices.Clone(t.origins), blocks: maps.Clone(t.blocks), order: slices.Clone(t.order),
		products: maps.Clone(t.products), computed: maps.Clone(t.computed)}
}

// dims returns the sizes of the axes of a block and the number of its channels; ok is false if they are unknown or too
// many.
func (t *tracer) dims(b match.Block) (dims []int, n int, ok bool) {
	rank, known := t.g.Facts.Rank(b.Value)
	if !known || rank < b.Axes {
		return nil, 0, false
	}
	n = 1
	dims = make([]int, b.Axes)
	for i := range dims {
		d, ok := t.g.Facts.Dim(b.Value, i-b.Axes)
		if !ok || d < 1 || d > int64(maxChannels) || n*int(d) > maxChannels {
			return nil, 0, false
		}
		dims[i] = int(d)
		n *= int(d)
	}
	return dims, n, true
}

// trace returns the channels of the last axes of v; nil if their number is unknown or too large.
func (t *tracer) trace(v *onnx.Value, axes int) []channel {
	b := match.Block{Value: t.g.Resolve(v), Axes: axes}
	if c, ok := t.blocks[b]; ok {
		return c
	}
	dims, n, ok := t.dims(b)
	if !ok {
		return nil
	}
	t.blocks[b] = nil // in progress
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

// origin makes the block an origin of channels. Equal computations share one.
func (t *tracer) origin(b match.Block, n int) []channel {
	k := slices.IndexFunc(t.origins, func(o match.Block) bool {
		return o.Axes == b.Axes && (o.Value == b.Value || t.g.Alike(o.Value, b.Value) || isConstant(o.Value) &&
			isConstant(b.Value) && t.g.Same(o.Value, b.Value))
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

// moved returns the channels of a block whose node moves channels; nil for other nodes.
func (t *tracer) moved(b match.Block, dims []int) []channel {
	n := b.Value.Producer
	if n == nil || !onnx.IsStandardDomain(n.Domain) || b.Value.Constant() != nil {
		return nil
	}
	switch n.OpType {
	case "Cast": // a wider type keeps the numbers
		if match.Widens(t.g.Facts.DataType(n.Input(0)), t.g.Facts.DataType(b.Value)) {
			c, _ := t.input(n.Input(0), b.Axes)
			return c
		}
	case "Concat", "ConcatFromSequence":
		if axes, ok := t.within(n, b); ok {
			return t.evaluated(n, b, dims, axes, -1)
		}
	case "Split", "Slice", "Gather", "Transpose":
		if axes, ok := t.within(n, b); ok {
			return t.evaluated(n, b, dims, axes, 0)
		}
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		return t.reshape(n, b)
	case "Expand", "Tile":
		return t.repeat(n, b, dims)
	case "Neg", "Mul", "Div", "Sub":
		if input := t.signed(n); input >= 0 {
			return t.evaluated(n, b, dims, b.Axes, input)
		}
	}
	return nil
}

// axis returns the index of an axis of the node's first input within the last axes of a block; ok is false if it comes
// before them.
func (t *tracer) axis(in *onnx.Value, axis int64, axes int) (place int, ok bool) {
	rank, known := t.g.Facts.Rank(in)
	if axis < 0 {
		axis += int64(rank)
	}
	place = int(axis) - (rank - axes)
	return place, known && place >= 0 && place < axes
}

// byAxes lists the blocks that can be operands in the order they were reached, blocks of one axis first: the others
// must be reshaped.
func (t *tracer) byAxes() []match.Block {
	list := slices.DeleteFunc(slices.Clone(t.order), func(b match.Block) bool { return b.Axes == 0 })
	slices.SortStableFunc(list, func(a, b match.Block) int { return cmp.Compare(a.Axes, b.Axes) })
	return list
}

// reached reports whether channels of v were traced.
func (t *tracer) reached(v *onnx.Value) bool {
	return slices.ContainsFunc(t.order, func(b match.Block) bool { return b.Value == v })
}
