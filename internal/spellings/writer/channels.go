package writer

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Channels cuts and joins the last axis, of size elements, of values of a rank.
type Channels struct {
	*Writer
	Rank, Size int
}

// Cut splits the last axis into parts.
func (c Channels) Cut(x *onnx.Value, sizes ...int) []*onnx.Value {
	equal := true
	for _, s := range sizes {
		equal = equal && s == sizes[0]
	}
	switch {
	case c.Chance(3):
		return c.Split(x, equal, sizes)
	case equal && c.Chance(4): // an axis of parts
		r := c.Reshaped(x, int64(len(sizes)), int64(sizes[0]))
		parts := make([]*onnx.Value, len(sizes))
		for i := range parts {
			parts[i] = c.Pick(r, i, -2, c.Rank+1)
		}
		return parts
	}
	parts := make([]*onnx.Value, len(sizes))
	at := 0
	for i, s := range sizes {
		parts[i] = c.Part(x, at, at+s)
		at += s
	}
	return parts
}

// Split cuts the last axis into parts of these sizes by one node; equal means that the sizes are equal.
func (c Channels) Split(x *onnx.Value, equal bool, sizes []int) []*onnx.Value {
	args := []any{x}
	switch {
	case equal && c.Opset >= 18 && c.Chance(2):
		args = append(args, onnx.IntAttr("num_outputs", int64(len(sizes))))
	case equal && c.Opset < 18 && c.Chance(2):
	default:
		list := make([]int64, len(sizes))
		for i, s := range sizes {
			list[i] = int64(s)
		}
		args = append(args, c.Ints(list...))
	}
	return c.Ops("Split", len(sizes), append(args, onnx.IntAttr("axis", c.LastAxis(c.Rank)))...)
}

// Part returns the channels from..to by a Slice or a Gather.
func (c Channels) Part(x *onnx.Value, from, to int) *onnx.Value {
	if c.Chance(5) {
		list := make([]int64, to-from)
		for i := range list {
			list[i] = int64(from + i)
			if c.Chance(4) {
				list[i] -= int64(c.Size)
			}
		}
		return c.Op("Gather", x, c.Ints(list...), onnx.IntAttr("axis", c.LastAxis(c.Rank)))
	}
	args := []any{x, c.bound(x, from), c.bound(x, to), c.Ints(c.LastAxis(c.Rank))}
	if c.Chance(2) {
		args = append(args, c.Ints(1))
	}
	return c.Op("Slice", args...)
}

// bound writes a bound of a Slice: a number counted from either end, or one computed from the shape.
func (c Channels) bound(x *onnx.Value, k int) *onnx.Value {
	switch {
	case k == c.Size && c.Chance(2):
		return c.Ints(Choose(c.Writer, int64(math.MaxInt64), math.MaxInt64-1, int64(c.Size), int64(c.Size)+5))
	case k == 0 && c.Chance(3):
		return c.Ints(Choose(c.Writer, int64(-c.Size), int64(-c.Size-3)))
	case k > 0 && k < c.Size && c.Chance(4):
		return c.Ints(int64(k - c.Size))
	case k > 0 && c.Chance(3):
		return c.computed(x, k)
	}
	return c.Ints(int64(k))
}

// computed writes the bound as TorchScript does, from the shape of x: d // 2, or d * k // d.
func (c Channels) computed(x *onnx.Value, k int) *onnx.Value {
	d := c.Op("Gather", c.Op("Shape", x), c.Constant(ScalarInt(c.LastAxis(c.Rank))), onnx.IntAttr("axis", 0))
	switch {
	case k == c.Size:
	case 2*k == c.Size:
		d = c.Op("Div", d, c.Constant(ScalarInt(2)))
	case c.Chance(2):
		d = c.Op("Sub", d, c.Constant(ScalarInt(int64(c.Size-k))))
	default:
		d = c.Op("Div", c.Op("Mul", d, c.Constant(ScalarInt(int64(k)))), c.Constant(ScalarInt(int64(c.Size))))
	}
	if c.Chance(2) {
		d = c.Cast(c.Cast(d, onnx.Int64), onnx.Int64)
	}
	return c.Op("Unsqueeze", d, c.Ints(0))
}

// ScalarInt makes a tensor of one int64 without axes.
func ScalarInt(v int64) *onnx.Tensor {
	t := onnx.NewInt64s("c", []int64{v})
	t.Dims = []int64{}
	return t
}

// Every returns each step-th channel from start.
func (c Channels) Every(x *onnx.Value, step, start int) *onnx.Value {
	switch c.Rand.IntN(4) {
	case 0:
		list := []int64{}
		for i := start; i < c.Size; i += step {
			list = append(list, int64(i))
		}
		return c.Op("Gather", x, c.Ints(list...), onnx.IntAttr("axis", c.LastAxis(c.Rank)))
	case 1:
		return c.Pick(c.Reshaped(x, int64(c.Size/step), int64(step)), start, -1, c.Rank+1)
	}
	end := Choose(c.Writer, int64(math.MaxInt64), int64(c.Size))
	return c.Op("Slice", x, c.Ints(int64(start)), c.Ints(end), c.Ints(c.LastAxis(c.Rank)), c.Ints(int64(step)))
}

// Pick takes one element of an axis (counted from the end, rank being x's) and drops the axis.
func (c Channels) Pick(x *onnx.Value, i int, axis int64, rank int) *onnx.Value {
	if c.Chance(2) {
		axis += int64(rank)
	}
	a := onnx.IntAttr("axis", axis)
	switch c.Rand.IntN(3) {
	case 0:
		return c.Op("Gather", x, c.Constant(ScalarInt(int64(i))), a)
	case 1:
		return c.Op("Squeeze", c.Op("Gather", x, c.Ints(int64(i)), a), c.Ints(axis))
	}
	return c.Op("Squeeze", c.Op("Slice", x, c.Ints(int64(i)), c.Ints(int64(i)+1), c.Ints(axis)), c.Ints(axis))
}

// Reshaped replaces the last axis by others; the axes before it are kept by zeros, or read from the shape.
func (c Channels) Reshaped(x *onnx.Value, last ...int64) *onnx.Value {
	zeros := make([]int64, c.Rank-1)
	if c.Chance(2) {
		if k := c.Rand.IntN(len(last)); c.Chance(3) && !c.Empty {
			last[k] = -1
		}
		return c.Op("Reshape", x, c.Ints(append(zeros, last...)...))
	}
	rows := c.Op("Slice", c.Op("Shape", x), c.Ints(0), c.Ints(Choose(c.Writer, -1, int64(c.Rank-1))))
	return c.Op("Reshape", x, c.Op("Concat", rows, c.Ints(last...), onnx.IntAttr("axis", 0)))
}

// Join concatenates parts.
func (c Channels) Join(parts ...*onnx.Value) *onnx.Value {
	args := []any{onnx.IntAttr("axis", c.LastAxis(c.Rank))}
	if len(parts) > 2 && c.Chance(2) {
		i := c.Rand.IntN(len(parts) - 1)
		parts = append(append(append([]*onnx.Value{}, parts[:i]...), c.Join(parts[i:i+2]...)), parts[i+2:]...)
	}
	for _, p := range parts {
		args = append(args, p)
	}
	return c.Op("Concat", args...)
}

// Weave alternates the channels of a and b; c.size is the size of the result.
func (c Channels) Weave(a, b *onnx.Value) *onnx.Value {
	half := Channels{c.Writer, c.Rank, c.Size / 2}
	if c.Chance(4) { // an axis of two before the channels, swapped with them
		perm := make([]int64, c.Rank+1)
		for i := range perm {
			perm[i] = int64(i)
		}
		perm[c.Rank-1], perm[c.Rank] = perm[c.Rank], perm[c.Rank-1]
		pairs := c.Reshaped(c.Join(a, b), 2, int64(half.Size))
		return c.Flat(c.Op("Transpose", pairs, onnx.IntsAttr("perm", perm)))
	}
	axis := c.LastAxis(c.Rank + 1)
	stack := c.Op("Concat", c.Op("Unsqueeze", a, c.Ints(axis)), c.Op("Unsqueeze", b, c.Ints(axis)),
		onnx.IntAttr("axis", c.LastAxis(c.Rank+1)))
	return c.Flat(stack)
}

// Flat joins the last two axes of x to one of c.size.
func (c Channels) Flat(x *onnx.Value) *onnx.Value {
	if c.Chance(3) {
		rows := c.Op("Slice", c.Op("Shape", x), c.Ints(0), c.Ints(-2))
		return c.Op("Reshape", x, c.Op("Concat", rows, c.Ints(Choose(c.Writer, -1, int64(c.Size))),
			onnx.IntAttr("axis", 0)))
	}
	return c.Op("Reshape", x, c.Ints(append(make([]int64, c.Rank-1), Choose(c.Writer, -1, int64(c.Size)))...))
}
