package target

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// tables are the cosines and sines of a RotaryEmbedding, a number for each pair of channels.
type tables struct {
	cos, sin *onnx.Value
	dims     []int64 // of both
}

// halfTables returns the tables of a RotaryEmbedding half as wide as the rotated channels. Wider ones are cut where
// they are known to hold everything twice, in the order of the channels that are written.
func (c *Call) halfTables() (*tables, error) {
	t := &tables{cos: c.Input(1), sin: c.Input(2), dims: slices.Clone(c.Dims(1))}
	if len(t.dims) == 0 || !slices.Equal(t.dims, c.Dims(2)) {
		return nil, fmt.Errorf("tables of cosines and sines of shapes %s and %s", shapeText(c.Dims(1)),
			shapeText(c.Dims(2)))
	}
	last, dim := len(t.dims)-1, c.Int("rotary_dim")
	if t.dims[last] == dim/2 {
		return t, nil
	}
	neighbours := c.String("output_layout") == "interleaved"
	if c.Repeats == nil || !c.Repeats(t.cos, neighbours) || !c.Repeats(t.sin, neighbours) {
		return nil, fmt.Errorf("the tables are %d wide and not known to hold each number twice: it takes %d",
			t.dims[last], dim/2)
	}
	t.dims[last] = dim / 2
	end, step := dim/2, int64(1)
	if neighbours {
		end, step = dim, 2
	}
	cut := []*onnx.Value{nil, c.Integers(0), c.Integers(end), c.Integers(-1), c.Integers(step)}
	for _, v := range []**onnx.Value{&t.cos, &t.sin} {
		cut[0] = *v
		*v = c.Op1("Slice", slices.Clone(cut))
	}
	return t, nil
}

// at returns dimension i of the tables as they are broadcast to a rank: 1 where they have none.
func (t *tables) at(i, rank int) int64 {
	if i -= rank - len(t.dims); i >= 0 {
		return t.dims[i]
	}
	return 1
}

// each applies f to both tables.
func (t *tables) each(f func(v *onnx.Value) *onnx.Value) { t.cos, t.sin = f(t.cos), f(t.sin) }

// shapeText writes a shape, with ? for what is unknown.
func shapeText(dims []int64) string {
	if dims == nil {
		return "of unknown rank"
	}
	s := "["
	for i, d := range dims {
		if i > 0 {
			s += ", "
		}
		if d < 0 {
			s += "?"
		} else {
			s += fmt.Sprint(d)
		}
	}
	return s + "]"
}
