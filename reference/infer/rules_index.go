package infer

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// indexRules: ops that pick elements, find places, or make sequences of numbers.
var indexRules = map[string]rule{
	"Gather":            gather,
	"GatherElements":    func(c *call) { c.set(0, c.dtype(0), c.shape(1)) },
	"GatherND":          gatherND,
	"TopK":              topK,
	"ArgMax":            argExtreme,
	"ArgMin":            argExtreme,
	"NonZero":           nonZero,
	"Unique":            unique,
	"Compress":          compress,
	"Range":             rangeOp,
	"OneHot":            oneHot,
	"NonMaxSuppression": func(c *call) { c.set(0, onnx.Int64, []int64{c.fresh(0), 3}) },
}

// gathered returns the shape of s with dimension a replaced by the shape of the indices.
func gathered(s, indices []int64, a int) []int64 {
	out := make([]int64, 0, len(s)+len(indices)-1)
	return append(append(append(out, s[:a]...), indices...), s[a+1:]...)
}

func gather(c *call) {
	s, idx := c.shape(0), c.shape(1)
	a, ok := axis(c.attrInt("axis", 0), len(s))
	if s == nil || idx == nil || !ok {
		c.set(0, c.dtype(0), nil)
		return
	}
	c.set(0, c.dtype(0), gathered(s, idx, a))
}

func gatherND(c *call) {
	s, idx, b := c.shape(0), c.shape(1), int(c.attrInt("batch_dims", 0))
	if s == nil || len(idx) == 0 || idx[len(idx)-1] < 0 || b < 0 || b >= len(idx) {
		c.set(0, c.dtype(0), nil)
		return
	}
	k := int64(b) + idx[len(idx)-1]
	if k > int64(len(s)) {
		c.set(0, c.dtype(0), nil)
		return
	}
	out := slices.Concat(idx[:len(idx)-1], s[k:])
	for i := range b {
		out[i] = c.must(idx[i], s[i])
	}
	if out == nil {
		out = []int64{}
	}
	c.set(0, c.dtype(0), out)
}

func topK(c *call) {
	s := c.shape(0)
	k, ok := c.int(1)
	if !c.has(1) {
		k, ok = c.attrInt("k", -1), true
	}
	var out []int64
	if a, fine := axis(c.attrInt("axis", -1), len(s)); s != nil && fine {
		if !ok {
			k = -1
		}
		out = with(s, a, k)
	}
	c.set(0, c.dtype(0), out)
	c.set(1, onnx.Int64, out)
}

func argExtreme(c *call) {
	s := c.shape(0)
	a, ok := axis(c.attrInt("axis", 0), len(s))
	if s == nil || !ok {
		c.set(0, onnx.Int64, nil)
		return
	}
	if c.attrInt("keepdims", 1) != 0 {
		c.set(0, onnx.Int64, with(s, a, 1))
		return
	}
	c.set(0, onnx.Int64, slices.Concat([]int64{}, s[:a], s[a+1:]))
}

func nonZero(c *call) {
	if c.evaluate() {
		return
	}
	rank := int64(-1)
	if s := c.shape(0); s != nil {
		rank = int64(max(len(s), 1))
		if product(s) == 0 {
			c.set(0, onnx.Int64, []int64{rank, 0})
			return
		}
	}
	c.set(0, onnx.Int64, []int64{rank, c.fresh(0)})
}

func unique(c *call) {
	if c.evaluate() {
		return
	}
	n := c.fresh(0)
	s := c.shape(0)
	first := []int64{n}
	total := product(s)
	if s == nil {
		total = -1
	}
	if c.attr("axis") != nil {
		a, ok := axis(c.attrInt("axis", 0), len(s))
		if !ok {
			first, total = nil, -1
		} else {
			first, total = with(s, a, n), s[a]
		}
	}
	c.set(0, c.dtype(0), first)
	c.set(1, onnx.Int64, []int64{n})
	c.set(2, onnx.Int64, []int64{total})
	c.set(3, onnx.Int64, []int64{n})
}

func compress(c *call) {
	if c.evaluate() {
		return
	}
	n := int64(-1)
	if t := c.val(1); t != nil {
		n = 0
		for _, x := range t.I {
			n += min(x, 1)
		}
	} else {
		n = c.fresh(0)
	}
	if c.attr("axis") == nil {
		c.set(0, c.dtype(0), []int64{n})
		return
	}
	s := c.shape(0)
	a, ok := axis(c.attrInt("axis", 0), len(s))
	if !ok {
		c.set(0, c.dtype(0), nil)
		return
	}
	c.set(0, c.dtype(0), with(s, a, n))
}

func rangeOp(c *call) {
	t := c.firstType(0)
	start, limit, delta := c.val(0), c.val(1), c.val(2)
	if start == nil || limit == nil || delta == nil || start.Len() != 1 || limit.Len() != 1 || delta.Len() != 1 {
		c.set(0, t, []int64{c.fresh(0)})
		return
	}
	var n float64
	if start.F != nil && limit.F != nil && delta.F != nil {
		n = math.Ceil((limit.F[0] - start.F[0]) / delta.F[0])
	} else if start.I != nil && limit.I != nil && delta.I != nil {
		n = math.Ceil(float64(limit.I[0]-start.I[0]) / float64(delta.I[0]))
	}
	if math.IsNaN(n) || n > 1<<40 {
		c.set(0, t, []int64{-1})
		return
	}
	c.set(0, t, []int64{int64(max(n, 0))})
}

func oneHot(c *call) {
	s := c.shape(0)
	depth := int64(-1)
	if t := c.val(1); t != nil && t.Len() == 1 {
		if depth = -1; t.I != nil {
			depth = t.I[0]
		} else if t.F != nil {
			depth = int64(t.F[0])
		}
	}
	a, ok := axis(c.attrInt("axis", -1), len(s)+1)
	if s == nil || !ok {
		c.set(0, c.dtype(2), nil)
		return
	}
	c.set(0, c.dtype(2), slices.Concat(s[:a], []int64{depth}, s[a:]))
}
