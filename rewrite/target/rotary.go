package target

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// rotation is a RotaryEmbedding in the form of other runtimes: x is [batch, heads, positions, channels], or [batch,
// positions, heads * channels] with packed heads, and pairs are written where they were read.
type rotation struct {
	c           *Call
	x           *onnx.Value
	dims        []int64 // of x
	tables      *tables
	interleaved bool
	partial     int64 // number of rotated channels of x; 0: all
	packed      bool
	heads       int64 // -1: unknown
	after       []func(y *onnx.Value) *onnx.Value
}

// rotation reads a RotaryEmbedding and writes the nodes before the rotation. It splits off other channels, unless they
// follow the rotated ones and keep reports that the target can skip them, and moves pairs to where they are written.
func (c *Call) rotation(keep func(heads int64) bool) (*rotation, error) {
	r := &rotation{c: c, x: c.Input(0), dims: c.Dims(0), interleaved: c.asRotary().Interleaved, heads: -1}
	rank := len(r.dims)
	if rank != 3 && rank != 4 {
		return nil, fmt.Errorf("X has the shape %s: it takes rank 3 or 4", shapeText(r.dims))
	}
	channels := r.dims[rank-1]
	if channels < 0 {
		return nil, errors.New("the number of channels is unknown")
	}
	t, err := c.halfTables()
	if err != nil {
		return nil, err
	}
	r.tables = t
	switch {
	case rank == 3:
		r.packed, r.heads = true, 1
	case t.at(1, 4) == 1:
		r.heads = r.dims[1]
	case t.at(2, 4) == 1:
		r.packed, r.heads = true, r.dims[2]
	default:
		return nil, fmt.Errorf("the tables have the shape %s: it takes one row for all heads", shapeText(t.dims))
	}
	dim := c.asRotary().RotaryDim
	if dim < channels {
		if c.asRotary().RotatedSide == "first" && r.natural() && keep(r.heads) {
			r.partial = dim
		} else {
			r.part(dim, channels)
		}
	}
	if !r.natural() {
		r.regroup(dim)
	}
	if r.packed && rank == 4 {
		r.pack()
	}
	return r, nil
}

// natural reports whether a pair is written where it was read.
func (r *rotation) natural() bool {
	return r.interleaved == (r.c.asRotary().OutputLayout == "interleaved")
}

// finish writes the nodes after the rotation, whose result is y, and sets the output.
func (r *rotation) finish(y *onnx.Value) {
	for i := len(r.after) - 1; i >= 0; i-- {
		y = r.after[i](y)
	}
	r.c.Output(0, y)
}

// part splits the rotated channels off x, and schedules a Concat that joins the others again.
func (r *rotation) part(dim, channels int64) {
	first := r.c.asRotary().RotatedSide == "first"
	sizes := []int64{channels - dim, dim}
	if first {
		sizes = []int64{dim, channels - dim}
	}
	parts := r.c.Add("", "Split", 2, []*onnx.Value{r.x, r.c.Integers(sizes...)}, onnx.IntAttr("axis", -1))
	at := 1
	if first {
		at = 0
	}
	r.x = parts[at]
	r.after = append(r.after, func(y *onnx.Value) *onnx.Value {
		parts[at] = y
		return r.c.Op1("Concat", parts, onnx.IntAttr("axis", -1))
	})
}

// regroup moves the pairs of x to where they are written.
func (r *rotation) regroup(dim int64) {
	list := slices.Clip(make([]int64, len(r.dims)-1)) // 0: as it is
	perm := make([]int64, len(r.dims)+1)
	for i := range perm {
		perm[i] = int64(i)
	}
	n := len(perm)
	perm[n-2], perm[n-1] = perm[n-1], perm[n-2]
	pairs := []int64{2, dim / 2}
	if r.interleaved {
		pairs = []int64{dim / 2, 2}
	}
	v := r.c.Op1("Reshape", []*onnx.Value{r.x, r.c.Integers(append(list, pairs...)...)})
	v = r.c.Op1("Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", perm))
	r.x = r.c.Op1("Reshape", []*onnx.Value{v, r.c.Integers(append(list, dim)...)})
	r.interleaved = !r.interleaved
}

// pack merges the axes of heads and channels.
func (r *rotation) pack() {
	dim := r.c.asRotary().RotaryDim
	if r.partial != 0 {
		dim = r.dims[3]
	}
	r.x = r.c.Op1("Reshape", []*onnx.Value{r.x, r.c.Integers(0, 0, -1)})
	r.after = append(r.after, func(y *onnx.Value) *onnx.Value {
		return r.c.Op1("Reshape", []*onnx.Value{y, r.c.Integers(0, 0, -1, dim)})
	})
}

// squeeze removes an axis with one element, or undoes the Unsqueeze that added it.
func (c *Call) squeeze(v *onnx.Value, axis int64) *onnx.Value {
	if n := v.Producer; n != nil && n.Is("Unsqueeze") {
		if t := n.Input(1).Constant(); t != nil && t.DataType == onnx.Int64 && t.Len() == 1 {
			if axes, err := reference.FromONNX(t); err == nil && axes.I[0] == axis {
				return n.Input(0)
			}
		}
	}
	return c.Op1("Squeeze", []*onnx.Value{v, c.Integers(axis)})
}

// rows returns the axes of X for the batch and the positions.
func (r *rotation) rows() (batch, positions int) {
	if r.packed {
		return 0, 1
	}
	return 0, 2
}

// rowShape returns the sizes of batch and positions as a value.
func (r *rotation) rowShape() *onnx.Value {
	b, s := r.rows()
	if r.dims[b] >= 0 && r.dims[s] >= 0 {
		return r.c.Integers(r.dims[b], r.dims[s])
	}
	shape := r.c.Op1("Shape", []*onnx.Value{r.c.Input(0)})
	return r.c.Op1("Gather", []*onnx.Value{shape, r.c.Integers(int64(b), int64(s))}, onnx.IntAttr("axis", 0))
}

// oneBatch reports whether one table serves the whole batch, with a row for each position.
func (r *rotation) oneBatch() bool {
	b, s := r.rows()
	return r.tables.at(b, len(r.dims)) == 1 && r.tables.at(s, len(r.dims)) == r.dims[s]
}

// expand expands the tables to [batch, positions, pairs].
func (r *rotation) expand() {
	c, t, rank := r.c, r.tables, len(r.dims)
	b, s := r.rows()
	if at := len(t.dims) - rank + 3 - s; rank == 4 && at >= 0 { // axis of the heads
		t.each(func(v *onnx.Value) *onnx.Value { return c.squeeze(v, int64(at)) })
	}
	if len(t.dims) == rank && t.dims[b] == r.dims[b] && t.dims[s] == r.dims[s] {
		return
	}
	pairs := t.dims[len(t.dims)-1]
	var shape *onnx.Value
	if r.dims[b] >= 0 && r.dims[s] >= 0 {
		shape = c.Integers(r.dims[b], r.dims[s], pairs)
	} else {
		shape = c.Op1("Concat", []*onnx.Value{r.rowShape(), c.Integers(pairs)}, onnx.IntAttr("axis", 0))
	}
	t.each(func(v *onnx.Value) *onnx.Value { return c.Op1("Expand", []*onnx.Value{v, shape}) })
}

// tables are the cosines and sines of a RotaryEmbedding, one number per pair of channels.
type tables struct {
	cos, sin *onnx.Value
	dims     []int64 // of both
}

// halfTables returns the tables of a RotaryEmbedding, half as wide as the rotated channels. It cuts wider tables if
// they are known to hold every element twice, in the order of the written channels.
func (c *Call) halfTables() (*tables, error) {
	t := &tables{cos: c.Input(1), sin: c.Input(2), dims: slices.Clone(c.Dims(1))}
	if len(t.dims) == 0 || !slices.Equal(t.dims, c.Dims(2)) {
		return nil, fmt.Errorf("the tables of cosines and sines have the different shapes %s and "+
			"%s", shapeText(c.Dims(1)),
			shapeText(c.Dims(2)))
	}
	last, dim := len(t.dims)-1, c.asRotary().RotaryDim
	if t.dims[last] == dim/2 {
		return t, nil
	}
	neighbors := c.asRotary().OutputLayout == "interleaved"
	if c.Repeats == nil || !c.Repeats(t.cos, neighbors) || !c.Repeats(t.sin, neighbors) {
		return nil, fmt.Errorf("the tables are %d wide and not known to hold each number twice: it takes %d",
			t.dims[last], dim/2)
	}
	t.dims[last] = dim / 2
	end, step := dim/2, int64(1)
	if neighbors {
		end, step = dim, 2
	}
	cut := []*onnx.Value{nil, c.Integers(0), c.Integers(end), c.Integers(-1), c.Integers(step)}
	for _, v := range []**onnx.Value{&t.cos, &t.sin} {
		cut[0] = *v
		*v = c.Op1("Slice", slices.Clone(cut))
	}
	return t, nil
}

// at returns dimension i of the tables broadcast to a rank: 1 if they lack it.
func (t *tables) at(i, rank int) int64 {
	if i -= rank - len(t.dims); i >= 0 {
		return t.dims[i]
	}
	return 1
}

func (t *tables) each(f func(v *onnx.Value) *onnx.Value) { t.cos, t.sin = f(t.cos), f(t.sin) }

// shapeText formats a shape, with ? for unknown dimensions.
func shapeText(dims []int64) string {
	if dims == nil {
		return "of unknown rank"
	}
	return strings.NewReplacer("-1", "?", " ", ", ").Replace(fmt.Sprint(dims))
}

// rotateHalf adds the rotation of x, which has the shape of input 0, by the tables cosAt and cosAt+1, as PyTorch
// transformers write it: x * cos + rotate_half(x) * sin. OpenVINO recognizes a RoPE in it if x has 3 or 4 dimensions
// and the tables have the same rank. Interleaved pairs are separated before the rotation and interleaved again after
// it.
func (c *Call) rotateHalf(x *onnx.Value, cosAt int) (*onnx.Value, error) {
	rank, d, r := len(c.Dims(0)), c.lastDim(0), c.asRotary().RotaryDim
	if rank != 3 && rank != 4 {
		return nil, fmt.Errorf("OpenVINO has RoPE of 3 and 4 dimensions, but X is %s", shapeText(c.Dims(0)))
	}
	cos, err := c.wideTable(cosAt, rank)
	if err != nil {
		return nil, err
	}
	sin, err := c.wideTable(cosAt+1, rank)
	if err != nil {
		return nil, err
	}
	var rest *onnx.Value
	last := c.asRotary().RotatedSide == "last"
	switch {
	case d == r:
	case d < 0 && last:
		return nil, fmt.Errorf("the last %d channels are unknown, because the last dimension of X is", r)
	case last:
		rest, x = c.channels(x, 0, d-r), c.channels(x, d-r, math.MaxInt64)
	default:
		x, rest = c.channels(x, 0, r), c.channels(x, r, math.MaxInt64)
	}
	if c.asRotary().Interleaved {
		x = c.gather(x, neighborsApart(r))
	}
	first, second := c.channels(x, 0, r/2), c.channels(x, r/2, math.MaxInt64)
	turned := c.join(c.Op1("Neg", []*onnx.Value{second}), first)
	y := c.Op1("Add", []*onnx.Value{c.Op1("Mul", []*onnx.Value{x, cos}), c.Op1("Mul", []*onnx.Value{turned, sin})})
	if c.asRotary().OutputLayout == "interleaved" {
		y = c.gather(y, neighborsTogether(r))
	}
	switch {
	case rest == nil:
		return y, nil
	case last:
		return c.join(rest, y), nil
	}
	return c.join(y, rest), nil
}

// wideTable returns table i with the rank of x and a column for each rotated channel; the first channels of all pairs
// come first.
func (c *Call) wideTable(i, rank int) (*onnx.Value, error) {
	v, dims, r := c.Input(i), c.Dims(i), c.asRotary().RotaryDim
	if dims == nil {
		return nil, fmt.Errorf("the rank of input %d, a table, is unknown", i)
	}
	switch w := c.lastDim(i); {
	case w == r/2:
		v = c.join(v, v)
	case w == r && c.asRotary().OutputLayout == "interleaved":
		v = c.gather(v, neighborsApart(r))
	case w != r:
		return nil, fmt.Errorf("input %d, a table, is %d wide; %d channels are rotated", i, w, r)
	}
	if front := rank - len(dims); front > 0 {
		axes := make([]int64, front)
		for j := range axes {
			axes[j] = int64(j)
		}
		v = c.Op1("Unsqueeze", []*onnx.Value{v, c.Integers(axes...)})
	}
	return v, nil
}

// neighborsApart returns the positions of the first channels of r/2 interleaved pairs, followed by those of the second
// channels.
func neighborsApart(r int64) []int64 {
	places := make([]int64, r)
	for i := range r / 2 {
		places[i], places[r/2+i] = 2*i, 2*i+1
	}
	return places
}

// neighborsTogether is the inverse of neighborsApart.
func neighborsTogether(r int64) []int64 {
	places := make([]int64, r)
	for i := range r / 2 {
		places[2*i], places[2*i+1] = i, r/2+i
	}
	return places
}

func (c *Call) lastDim(i int) int64 {
	if d := c.Dims(i); len(d) > 0 {
		return d[len(d)-1]
	}
	return -1
}

func (c *Call) channels(v *onnx.Value, from, to int64) *onnx.Value {
	return c.Op1("Slice", []*onnx.Value{v, c.Integers(from), c.Integers(to), c.Integers(-1), c.Integers(1)})
}

func (c *Call) gather(v *onnx.Value, places []int64) *onnx.Value {
	return c.Op1("Gather", []*onnx.Value{v, c.Integers(places...)}, onnx.IntAttr("axis", -1))
}

func (c *Call) join(v ...*onnx.Value) *onnx.Value {
	return c.Op1("Concat", v, onnx.IntAttr("axis", -1))
}
