package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// reduceRules: ops that combine the elements along axes.
var reduceRules = merge(
	each(reduce, "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
		"ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
	each(globalPool, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
)

func reduce(c *call) {
	s, t := c.shape(0), c.dtype(0)
	axes, given, ok := c.axes(1, "axes")
	keep := c.attrInt("keepdims", 1) != 0
	if s == nil || !ok {
		if s != nil && keep {
			s = unknown(len(s))
		} else {
			s = nil
		}
		c.set(0, t, s)
		return
	}
	c.set(0, t, reduced(s, axes, given, keep, c.attrInt("noop_with_empty_axes", 0) != 0))
}

// reduced returns the shape after a reduction; without axes all are reduced, or none.
func reduced(s, axes []int64, given, keep, noop bool) []int64 {
	if !given || len(axes) == 0 {
		switch {
		case noop:
			return s
		case !keep:
			return []int64{}
		}
		out := make([]int64, len(s))
		for i := range out {
			out[i] = 1
		}
		return out
	}
	if keep {
		out := slices.Clone(s)
		for _, a := range axes {
			k, ok := axis(a, len(s))
			if !ok {
				return nil
			}
			out[k] = 1
		}
		return out
	}
	drop := make([]bool, len(s))
	for _, a := range axes {
		k, ok := axis(a, len(s))
		if !ok {
			return nil
		}
		drop[k] = true
	}
	out := make([]int64, 0, len(s))
	for i, d := range s {
		if !drop[i] {
			out = append(out, d)
		}
	}
	return out
}

func globalPool(c *call) {
	s := slices.Clone(c.shape(0))
	for i := 2; i < len(s); i++ {
		s[i] = 1
	}
	c.set(0, c.dtype(0), s)
}

// normalizedFrom returns the shape of the statistics of a normalisation over the dimensions from the axis on: these
// dimensions are 1.
func normalizedFrom(s []int64, a int64) []int64 {
	k, ok := axis(a, len(s))
	if s == nil || !ok {
		return nil
	}
	out := slices.Clone(s)
	for i := k; i < len(out); i++ {
		out[i] = 1
	}
	return out
}

// layerNormalization: Y, and the mean and inverse deviation in the type that they are computed in.
func layerNormalization(c *call) {
	c.set(0, c.dtype(0), c.shape(0))
	stats := normalizedFrom(c.shape(0), c.attrInt("axis", -1))
	c.set(1, c.attrType("stash_type", onnx.Float), stats)
	c.set(2, c.attrType("stash_type", onnx.Float), stats)
}

// rmsNormalization: Y has the type of the scale.
func rmsNormalization(c *call) {
	t := c.dtype(1)
	if t == onnx.Undefined {
		t = c.dtype(0)
	}
	c.set(0, t, c.shape(0))
	c.set(1, c.attrType("stash_type", onnx.Float), normalizedFrom(c.shape(0), c.attrInt("axis", -1)))
}
