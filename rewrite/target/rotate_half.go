package target

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// rotateHalf adds the rotation of x, whose shape is that of input 0, by the tables cosAt and the one after it, as
// PyTorch transformers write it: x * cos + rotate_half(x) * sin. OpenVINO sees a RoPE in it where x has 3 or 4
// dimensions and the tables as many as x. Pairs of neighbours are put apart before and together again behind it.
func (c *Call) rotateHalf(x *onnx.Value, cosAt int) (*onnx.Value, error) {
	rank, d, r := len(c.Dims(0)), c.lastDim(0), c.Int("rotary_dim")
	if rank != 3 && rank != 4 {
		return nil, fmt.Errorf("OpenVINO has RoPE of 3 and 4 dimensions, not of X, %s", shapeText(c.Dims(0)))
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
	last := c.String("rotated_side") == "last"
	switch {
	case d == r:
	case d < 0 && last:
		return nil, fmt.Errorf("which channels are the last %d is unknown: X's last dimension is", r)
	case last:
		rest, x = c.channels(x, 0, d-r), c.channels(x, d-r, math.MaxInt64)
	default:
		x, rest = c.channels(x, 0, r), c.channels(x, r, math.MaxInt64)
	}
	if c.Int("interleaved") == 1 {
		x = c.gather(x, neighboursApart(r))
	}
	first, second := c.channels(x, 0, r/2), c.channels(x, r/2, math.MaxInt64)
	turned := c.join(c.Op1("Neg", []*onnx.Value{second}), first)
	y := c.Op1("Add", []*onnx.Value{c.Op1("Mul", []*onnx.Value{x, cos}), c.Op1("Mul", []*onnx.Value{turned, sin})})
	if c.String("output_layout") == "interleaved" {
		y = c.gather(y, neighboursTogether(r))
	}
	switch {
	case rest == nil:
		return y, nil
	case last:
		return c.join(rest, y), nil
	}
	return c.join(y, rest), nil
}

// wideTable returns table i with as many dimensions as x, and with a column for each rotated channel, the first ones of
// all pairs first.
func (c *Call) wideTable(i, rank int) (*onnx.Value, error) {
	v, dims, r := c.Input(i), c.Dims(i), c.Int("rotary_dim")
	if dims == nil {
		return nil, fmt.Errorf("the rank of input %d, a table, is unknown", i)
	}
	switch w := c.lastDim(i); {
	case w == r/2:
		v = c.join(v, v)
	case w == r && c.String("output_layout") == "interleaved":
		v = c.gather(v, neighboursApart(r))
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

// neighboursApart returns the places of the first channels of r/2 pairs of neighbours, and then those of the second
// ones.
func neighboursApart(r int64) []int64 {
	places := make([]int64, r)
	for i := range r / 2 {
		places[i], places[r/2+i] = 2*i, 2*i+1
	}
	return places
}

// neighboursTogether is the way back from neighboursApart.
func neighboursTogether(r int64) []int64 {
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
