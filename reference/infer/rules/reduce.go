package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// reduceRules: ops that combine the elements along axes.
var reduceRules = merge(
	each(shaped(like(0), reduce), "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
		"ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
	each(shaped(like(0), globalPool), "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
)

func reduce(c *Call) []int64 {
	s := c.shape(0)
	axes, _, ok := c.axes(1, "axes")
	keep := c.attrInt("keepdims", 1) != 0
	switch {
	case s == nil || !ok && !keep:
		return nil
	case !ok:
		return unknown(len(s))
	case len(axes) > 0:
	case c.attrInt("noop_with_empty_axes", 0) != 0:
		return s
	default: // all
		for i := range s {
			axes = append(axes, int64(i))
		}
	}
	if !keep {
		return without(s, axes)
	}
	out := slices.Clone(s)
	for _, a := range axes {
		k, ok := Axis(a, len(s))
		if !ok {
			return nil
		}
		out[k] = 1
	}
	return out
}

func globalPool(c *Call) []int64 {
	s := slices.Clone(c.shape(0))
	for i := 2; i < len(s); i++ {
		s[i] = 1
	}
	return s
}

// normalizedFrom returns the shape of the statistics of a normalization over the dimensions from the axis on, which
// become 1.
func normalizedFrom(s []int64, a int64) []int64 {
	k, ok := Axis(a, len(s))
	if s == nil || !ok {
		return nil
	}
	return slices.Concat(s[:k], slices.Repeat([]int64{1}, len(s)-k))
}

// layerNormalization: Y, and the mean and inverse deviation in the type that they are computed in.
func layerNormalization(c *Call) {
	c.set(0, c.dtype(0), c.shape(0))
	stats := normalizedFrom(c.shape(0), c.attrInt("axis", -1))
	c.set(1, c.attrType("stash_type", onnx.Float), stats)
	c.set(2, c.attrType("stash_type", onnx.Float), stats)
}

// rmsNormalization: Y has the type of the scale.
func rmsNormalization(c *Call) {
	t := c.dtype(1)
	if t == onnx.Undefined {
		t = c.dtype(0)
	}
	c.set(0, t, c.shape(0))
	c.set(1, c.attrType("stash_type", onnx.Float), normalizedFrom(c.shape(0), c.attrInt("axis", -1)))
}
