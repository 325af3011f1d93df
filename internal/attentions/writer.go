package attentions

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// code writes attention as in published models: four heads of eight channels, of hidden states x [batch, sequence, 32].
type code struct {
	*onnxtest.Builder
	x, mask *onnx.Value // mask [batch, keys] holds 1 for tokens
	seed    float64
}

func newCode() *code {
	c := &code{Builder: onnxtest.New(18)}
	c.x = c.Input("x", onnx.Float, "batch", "sequence", 32)
	return c
}

// padding adds the padding mask.
func (c *code) padding() *onnx.Value {
	c.mask = c.Input("attention_mask", onnx.Int64, "batch", "sequence")
	return c.mask
}

// tensor returns a constant of different numbers.
func (c *code) tensor(dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	list := make([]float64, n)
	for i := range list {
		c.seed++
		list[i] = math.Sin(c.seed*c.seed) / 4
	}
	return c.floats(dims, list)
}

func (c *code) floats(dims []int, list []float64) *onnx.Value {
	t, _ := reference.NewFloats(onnx.Float, dims, list).ToONNX("w")
	return c.Constant(t)
}

func (c *code) bools(dims []int, list []int64) *onnx.Value {
	t, _ := reference.NewInts(onnx.Bool, dims, list).ToONNX("buffer")
	return c.Constant(t)
}

// buffer returns a triangle of booleans that is larger than any input.
func (c *code) buffer(size int) *onnx.Value {
	list := make([]int64, size*size)
	for i := range size {
		for j := range i + 1 {
			list[i*size+j] = 1
		}
	}
	return c.bools([]int{1, 1, size, size}, list)
}

func (c *code) dim(v *onnx.Value, axis int) *onnx.Value {
	return c.Op("Gather", c.Op("Shape", v), axis)
}
func (c *code) vector(v *onnx.Value) *onnx.Value { return c.Op("Reshape", v, []int64{1}) }
func (c *code) at(v *onnx.Value, axes ...int64) *onnx.Value {
	return c.Op("Unsqueeze", v, axes)
}
func (c *code) turn(v *onnx.Value, perm ...int64) *onnx.Value {
	return c.Op("Transpose", v, onnx.IntsAttr("perm", perm))
}
func (c *code) cast(v *onnx.Value, t onnx.DataType) *onnx.Value {
	return c.Op("Cast", v, onnx.IntAttr("to", int64(t)))
}
func (c *code) number(v *onnx.Value) *onnx.Value { return c.cast(v, onnx.Float) }
func (c *code) is(v *onnx.Value) *onnx.Value     { return c.cast(v, onnx.Bool) }
func (c *code) join(axis int64, parts ...any) *onnx.Value {
	return c.Op("Concat", append(parts, onnx.IntAttr("axis", axis))...)
}
func (c *code) softmax(v *onnx.Value) *onnx.Value {
	return c.Op("Softmax", v, onnx.IntAttr("axis", -1))
}
func (c *code) project(x *onnx.Value, wide int) *onnx.Value {
	return c.Op("Add", c.Op("MatMul", x, c.tensor(32, wide)), c.tensor(wide))
}

// heads returns [batch, heads, sequence, 8].
func (c *code) heads(v *onnx.Value, n int64) *onnx.Value {
	return c.turn(c.Op("Reshape", v, []int64{0, 0, n, 8}), 0, 2, 1, 3)
}

// qkv returns queries, keys and values by heads.
func (c *code) qkv() (q, k, v *onnx.Value) {
	return c.heads(c.project(c.x, 32), 4), c.heads(c.project(c.x, 32), 4), c.heads(c.project(c.x, 32), 4)
}

// cached appends keys and values to the cache.
func (c *code) cached(k, v *onnx.Value, heads int) (keys, values *onnx.Value) {
	join := func(name string, v *onnx.Value) *onnx.Value {
		out := c.join(2, c.Input("past_"+name, onnx.Float, "batch", heads, "past", 8), v)
		c.Output(out)
		return out
	}
	return join("key", k), join("value", v)
}

func (c *code) scores(q, k *onnx.Value) *onnx.Value { return c.Op("MatMul", q, c.turn(k, 0, 1, 3, 2)) }

// out ends the block.
func (c *code) out(y *onnx.Value) {
	c.Output(c.Op("MatMul", c.Op("Reshape", c.turn(y, 0, 2, 1, 3), []int64{0, 0, 32}), c.tensor(32, 32)))
}

// folded moves heads to rows of the batch, [batch * heads, sequence, 8].
func (c *code) folded(v *onnx.Value) *onnx.Value {
	shape := c.join(0, []int64{-1}, c.vector(c.dim(v, 2)), []int64{8})
	return c.Op("Reshape", v, shape)
}

// unfolded returns scores [batch, heads, queries, keys] of folded ones; refolded is its inverse.
func (c *code) unfolded(s *onnx.Value) *onnx.Value {
	return c.Op("Reshape", s, c.join(0, []int64{-1, 4}, c.vector(c.dim(s, 1)), c.vector(c.dim(s, 2))))
}

func (c *code) refolded(s *onnx.Value) *onnx.Value {
	return c.Op("Reshape", s, c.join(0, []int64{-1}, c.vector(c.dim(s, 2)), c.vector(c.dim(s, 3))))
}

// positions returns the positions of queries, as a column, and of keys, as a row.
func (c *code) positions(keys *onnx.Value) (i, j *onnx.Value) {
	all := c.dim(keys, 2)
	from := c.Op("Sub", all, c.dim(c.x, 1))
	return c.at(c.Op("Range", from, all, 1), 1), c.at(c.Op("Range", 0, all, 1), 0)
}

var minusInfinity = math.Inf(-1)

const lowestNumber = -math.MaxFloat32

// t5Bias returns a bias by distance from a table, with a query for each key.
func (c *code) t5Bias(keys *onnx.Value, causal bool) *onnx.Value {
	r := c.Op("Range", 0, c.dim(keys, 2), 1)
	d := c.Op("Sub", c.at(r, 0), c.at(r, 1))
	var far *onnx.Value
	if causal {
		far = c.Op("Neg", c.Op("Min", d, 0))
	} else {
		far = c.Op("Abs", d)
	}
	log := c.Op("Div", c.Op("Log", c.Op("Div", c.number(c.Op("Max", far, 1)), 4.0)), 1.3862944)
	large := c.Op("Min", c.Op("Add", c.cast(c.Op("Mul", log, 4.0), onnx.Int64), 4), 7)
	bucket := c.Op("Where", c.Op("Less", far, 4), far, large)
	if !causal {
		bucket = c.Op("Add", bucket, c.Op("Mul", c.cast(c.Op("Greater", d, 0), onnx.Int64), 8))
	}
	return c.at(c.turn(c.Op("Gather", c.tensor(16, 4), bucket), 2, 0, 1), 0)
}

// cut keeps only the last rows in the cache: attention reads the cached rows and the new ones.
func (c *code) cut(v *onnx.Value, window int64) *onnx.Value {
	all := c.join(2, c.Input(fmt.Sprintf("past_%d", len(c.Graph.Inputs)), onnx.Float, "batch", 4, "past", 8), v)
	c.Output(c.Op("Slice", all, []int64{1 - window}, []int64{math.MaxInt64}, []int64{2}))
	return all
}
