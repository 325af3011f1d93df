package rules

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// indexRules: ops that pick elements, find places, or make number sequences.
var indexRules = map[string]Rule{
	"Gather":            shaped(like(0), gather),
	"GatherElements":    shaped(like(0), shapeOf(1)),
	"GatherND":          shaped(like(0), gatherND),
	"TopK":              topK,
	"ArgMax":            shaped(always(onnx.Int64), argExtreme),
	"ArgMin":            shaped(always(onnx.Int64), argExtreme),
	"NonZero":           nonZero,
	"Unique":            unique,
	"Compress":          compress,
	"Range":             shaped(firstOf(0), rangeOp),
	"OneHot":            shaped(like(2), oneHot),
	"NonMaxSuppression": func(c *Call) { c.set(0, onnx.Int64, []int64{c.fresh(0), 3}) },
}

func gather(c *Call) []int64 { return gathered(c.shape(0), c.shape(1), c.attrInt("axis", 0)) }

// gathered returns the shape of s with an axis replaced by the shape of the indices.
func gathered(s, indices []int64, at int64) []int64 {
	a, ok := Axis(at, len(s))
	if indices == nil || !ok {
		return nil
	}
	return append(append(append(make([]int64, 0, len(s)+len(indices)), s[:a]...), indices...), s[a+1:]...)
}

func gatherND(c *Call) []int64 {
	s, idx, b := c.shape(0), c.shape(1), int(c.attrInt("batch_dims", 0))
	if s == nil || len(idx) == 0 || idx[len(idx)-1] < 0 || b < 0 || b >= len(idx) {
		return nil
	}
	k := int64(b) + idx[len(idx)-1]
	if k > int64(len(s)) {
		return nil
	}
	out := slices.Concat([]int64{}, idx[:len(idx)-1], s[k:])
	for i := range b {
		out[i] = c.must(idx[i], s[i])
	}
	return out
}

func topK(c *Call) {
	s := c.shape(0)
	k := c.intOr(1, -1)
	if !c.has(1) {
		k = c.attrInt("k", -1)
	}
	var out []int64
	if a, ok := Axis(c.attrInt("axis", -1), len(s)); ok {
		out = With(s, a, k)
	}
	c.set(0, c.dtype(0), out)
	c.set(1, onnx.Int64, out)
}

func argExtreme(c *Call) []int64 {
	s := c.shape(0)
	a, ok := Axis(c.attrInt("axis", 0), len(s))
	switch {
	case !ok:
		return nil
	case c.attrInt("keepdims", 1) != 0:
		return With(s, a, 1)
	}
	return slices.Concat([]int64{}, s[:a], s[a+1:])
}

func nonZero(c *Call) {
	if c.evaluate() {
		return
	}
	s, rank := c.shape(0), int64(-1)
	if s != nil {
		rank = int64(max(len(s), 1))
	}
	if s != nil && product(s) == 0 {
		c.set(0, onnx.Int64, []int64{rank, 0})
		return
	}
	c.set(0, onnx.Int64, []int64{rank, c.fresh(0)})
}

func unique(c *Call) {
	if c.evaluate() {
		return
	}
	n, s := c.fresh(0), c.shape(0)
	first, total := []int64{n}, int64(-1)
	if c.attr("axis") == nil {
		if s != nil {
			total = product(s)
		}
	} else if a, ok := Axis(c.attrInt("axis", 0), len(s)); ok {
		first, total = With(s, a, n), s[a]
	} else {
		first = nil
	}
	c.set(0, c.dtype(0), first)
	c.set(1, onnx.Int64, []int64{n})
	c.set(2, onnx.Int64, []int64{total})
	c.set(3, onnx.Int64, []int64{n})
}

func compress(c *Call) {
	if c.evaluate() {
		return
	}
	n := int64(0)
	if t := c.val(1); t != nil && !c.open(t) {
		for _, x := range t.I {
			n += min(x, 1)
		}
	} else {
		n = c.fresh(0)
	}
	s := c.shape(0)
	if c.attr("axis") == nil {
		c.set(0, c.dtype(0), []int64{n})
	} else if a, ok := Axis(c.attrInt("axis", 0), len(s)); ok {
		c.set(0, c.dtype(0), With(s, a, n))
	} else {
		c.set(0, c.dtype(0), nil)
	}
}

func rangeOp(c *Call) []int64 {
	start, ok1 := c.number(0)
	limit, ok2 := c.number(1)
	delta, ok3 := c.number(2)
	if !ok1 || !ok2 || !ok3 {
		return []int64{c.fresh(0)}
	}
	if c.w == Proof && (c.open(c.val(0)) || c.open(c.val(1)) || c.open(c.val(2))) {
		if delta != 1 {
			return []int64{c.table().Dimension("range", int64(start), int64(limit), int64(delta))}
		}
		return []int64{c.table().Greatest(c.table().Sub(int64(limit), int64(start)), 0)}
	}
	n := math.Ceil((limit - start) / delta)
	if math.IsNaN(n) || n > 1<<40 {
		return []int64{-1}
	}
	return []int64{int64(max(n, 0))}
}

// number returns the element of an input of one element, if known.
func (c *Call) number(i int) (float64, bool) {
	switch t := c.val(i); {
	case t == nil || t.Len() != 1:
	case t.F != nil:
		return t.F[0], true
	case t.I != nil:
		return float64(t.I[0]), true
	}
	return 0, false
}

func oneHot(c *Call) []int64 {
	s, depth := c.shape(0), int64(-1)
	if n, ok := c.number(1); ok {
		depth = int64(n)
	}
	a, ok := Axis(c.attrInt("axis", -1), len(s)+1)
	if s == nil || !ok {
		return nil
	}
	return slices.Insert(slices.Clone(s), a, depth)
}
