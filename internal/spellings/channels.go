package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// channels cuts and joins the last axis, of size elements, of values of a rank.
type channels struct {
	*writer
	rank, size int
}

// cut splits the last axis into parts.
func (c channels) cut(x *onnx.Value, sizes ...int) []*onnx.Value {
	equal := true
	for _, s := range sizes {
		equal = equal && s == sizes[0]
	}
	switch {
	case c.chance(3):
		return c.split(x, equal, sizes)
	case equal && c.chance(4): // an axis of parts
		r := c.reshaped(x, int64(len(sizes)), int64(sizes[0]))
		parts := make([]*onnx.Value, len(sizes))
		for i := range parts {
			parts[i] = c.pick(r, i, -2, c.rank+1)
		}
		return parts
	}
	parts := make([]*onnx.Value, len(sizes))
	at := 0
	for i, s := range sizes {
		parts[i] = c.part(x, at, at+s)
		at += s
	}
	return parts
}

func (c channels) split(x *onnx.Value, equal bool, sizes []int) []*onnx.Value {
	args := []any{x}
	switch {
	case equal && c.opset >= 18 && c.chance(2):
		args = append(args, onnx.IntAttr("num_outputs", int64(len(sizes))))
	case equal && c.opset < 18 && c.chance(2):
	default:
		list := make([]int64, len(sizes))
		for i, s := range sizes {
			list[i] = int64(s)
		}
		args = append(args, c.ints(list...))
	}
	return c.ops("Split", len(sizes), append(args, onnx.IntAttr("axis", c.lastAxis(c.rank)))...)
}

// part returns the channels from..to by a Slice or a Gather.
func (c channels) part(x *onnx.Value, from, to int) *onnx.Value {
	if c.chance(5) {
		list := make([]int64, to-from)
		for i := range list {
			list[i] = int64(from + i)
			if c.chance(4) {
				list[i] -= int64(c.size)
			}
		}
		return c.op("Gather", x, c.ints(list...), onnx.IntAttr("axis", c.lastAxis(c.rank)))
	}
	args := []any{x, c.bound(x, from), c.bound(x, to), c.ints(c.lastAxis(c.rank))}
	if c.chance(2) {
		args = append(args, c.ints(1))
	}
	return c.op("Slice", args...)
}

// bound writes a bound of a Slice: a number counted from either end, or one computed from the shape.
func (c channels) bound(x *onnx.Value, k int) *onnx.Value {
	switch {
	case k == c.size && c.chance(2):
		return c.ints(choose(c.writer, int64(math.MaxInt64), math.MaxInt64-1, int64(c.size), int64(c.size)+5))
	case k == 0 && c.chance(3):
		return c.ints(choose(c.writer, int64(-c.size), int64(-c.size-3)))
	case k > 0 && k < c.size && c.chance(4):
		return c.ints(int64(k - c.size))
	case k > 0 && c.chance(3):
		return c.computed(x, k)
	}
	return c.ints(int64(k))
}

// computed writes the bound as TorchScript does, from the shape of x: d // 2, or d * k // d.
func (c channels) computed(x *onnx.Value, k int) *onnx.Value {
	d := c.op("Gather", c.op("Shape", x), c.constant(scalarInt(c.lastAxis(c.rank))), onnx.IntAttr("axis", 0))
	switch {
	case k == c.size:
	case 2*k == c.size:
		d = c.op("Div", d, c.constant(scalarInt(2)))
	case c.chance(2):
		d = c.op("Sub", d, c.constant(scalarInt(int64(c.size-k))))
	default:
		d = c.op("Div", c.op("Mul", d, c.constant(scalarInt(int64(k)))), c.constant(scalarInt(int64(c.size))))
	}
	if c.chance(2) {
		d = c.cast(c.cast(d, onnx.Int64), onnx.Int64)
	}
	return c.op("Unsqueeze", d, c.ints(0))
}

func scalarInt(v int64) *onnx.Tensor {
	t := onnx.NewInt64s("c", []int64{v})
	t.Dims = []int64{}
	return t
}

// every returns each step-th channel from start.
func (c channels) every(x *onnx.Value, step, start int) *onnx.Value {
	switch c.r.IntN(4) {
	case 0:
		list := []int64{}
		for i := start; i < c.size; i += step {
			list = append(list, int64(i))
		}
		return c.op("Gather", x, c.ints(list...), onnx.IntAttr("axis", c.lastAxis(c.rank)))
	case 1:
		return c.pick(c.reshaped(x, int64(c.size/step), int64(step)), start, -1, c.rank+1)
	}
	end := choose(c.writer, int64(math.MaxInt64), int64(c.size))
	return c.op("Slice", x, c.ints(int64(start)), c.ints(end), c.ints(c.lastAxis(c.rank)), c.ints(int64(step)))
}

// pick takes one element of an axis (counted from the end, rank being x's) and drops the axis.
func (c channels) pick(x *onnx.Value, i int, axis int64, rank int) *onnx.Value {
	if c.chance(2) {
		axis += int64(rank)
	}
	a := onnx.IntAttr("axis", axis)
	switch c.r.IntN(3) {
	case 0:
		return c.op("Gather", x, c.constant(scalarInt(int64(i))), a)
	case 1:
		return c.op("Squeeze", c.op("Gather", x, c.ints(int64(i)), a), c.ints(axis))
	}
	return c.op("Squeeze", c.op("Slice", x, c.ints(int64(i)), c.ints(int64(i)+1), c.ints(axis)), c.ints(axis))
}

// reshaped replaces the last axis by others; the axes before it are kept by zeros, or read from the shape.
func (c channels) reshaped(x *onnx.Value, last ...int64) *onnx.Value {
	zeros := make([]int64, c.rank-1)
	if c.chance(2) {
		if k := c.r.IntN(len(last)); c.chance(3) && !c.empty {
			last[k] = -1
		}
		return c.op("Reshape", x, c.ints(append(zeros, last...)...))
	}
	rows := c.op("Slice", c.op("Shape", x), c.ints(0), c.ints(choose(c.writer, -1, int64(c.rank-1))))
	return c.op("Reshape", x, c.op("Concat", rows, c.ints(last...), onnx.IntAttr("axis", 0)))
}

// join concatenates parts.
func (c channels) join(parts ...*onnx.Value) *onnx.Value {
	args := []any{onnx.IntAttr("axis", c.lastAxis(c.rank))}
	if len(parts) > 2 && c.chance(2) {
		i := c.r.IntN(len(parts) - 1)
		parts = append(append(append([]*onnx.Value{}, parts[:i]...), c.join(parts[i:i+2]...)), parts[i+2:]...)
	}
	for _, p := range parts {
		args = append(args, p)
	}
	return c.op("Concat", args...)
}

// weave alternates the channels of a and b; c.size is the size of the result.
func (c channels) weave(a, b *onnx.Value) *onnx.Value {
	half := channels{c.writer, c.rank, c.size / 2}
	if c.chance(4) { // an axis of two before the channels, swapped with them
		perm := make([]int64, c.rank+1)
		for i := range perm {
			perm[i] = int64(i)
		}
		perm[c.rank-1], perm[c.rank] = perm[c.rank], perm[c.rank-1]
		pairs := c.reshaped(c.join(a, b), 2, int64(half.size))
		return c.flat(c.op("Transpose", pairs, onnx.IntsAttr("perm", perm)))
	}
	axis := c.lastAxis(c.rank + 1)
	stack := c.op("Concat", c.op("Unsqueeze", a, c.ints(axis)), c.op("Unsqueeze", b, c.ints(axis)),
		onnx.IntAttr("axis", c.lastAxis(c.rank+1)))
	return c.flat(stack)
}

// flat joins the last two axes of x to one of c.size.
func (c channels) flat(x *onnx.Value) *onnx.Value {
	if c.chance(3) {
		rows := c.op("Slice", c.op("Shape", x), c.ints(0), c.ints(-2))
		return c.op("Reshape", x, c.op("Concat", rows, c.ints(choose(c.writer, -1, int64(c.size))),
			onnx.IntAttr("axis", 0)))
	}
	return c.op("Reshape", x, c.ints(append(make([]int64, c.rank-1), choose(c.writer, -1, int64(c.size)))...))
}
