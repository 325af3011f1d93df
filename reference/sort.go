package reference

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var sortOps = map[string]opDef{
	"TopK":   plain(1, opTopK),
	"Unique": plain(1, opUnique),
}

// compareAt orders two elements; NaN counts as the greatest, as in PyTorch and numpy.
func (t *Tensor) compareAt(i, j int) int {
	switch {
	case t.F != nil:
		x, y := t.F[i], t.F[j]
		if x != x || y != y {
			return cmp.Compare(boolInt(x != x), boolInt(y != y))
		}
		return cmp.Compare(x, y)
	case t.DataType == onnx.Uint64:
		return cmp.Compare(uint64(t.I[i]), uint64(t.I[j]))
	case t.I != nil:
		return cmp.Compare(t.I[i], t.I[j])
	}
	return cmp.Compare(t.S[i], t.S[j])
}

// opTopK takes k as an attribute before opset 10. Among equal elements the first one wins.
func opTopK(c *call) []*Tensor {
	x := c.in[0]
	k := c.integer(1, c.int("k", -1))
	axis := c.axis(c.int("axis", -1), x.Rank())
	largest := c.int("largest", 1) != 0
	n, inner := x.Shape[axis], size(x.Shape[axis+1:])
	if k < 0 || k > int64(n) {
		fail("k is %d, dimension %d has %d elements", k, axis, n)
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = int(k)
	off := make([]int, size(shape))
	at := make([]int64, len(off))
	order := make([]int, n)
	for line := range size(x.Shape[:axis]) * inner {
		o, i := line/inner, line%inner
		for j := range order {
			order[j] = (o*n+j)*inner + i
		}
		slices.SortStableFunc(order, func(p, q int) int {
			if largest {
				return x.compareAt(q, p)
			}
			return x.compareAt(p, q)
		})
		for j, p := range order[:k] {
			r := (o*int(k)+j)*inner + i
			off[r], at[r] = p, int64(p/inner%n)
		}
	}
	return []*Tensor{x.take(shape, off), NewInts(onnx.Int64, shape, at)}
}

// opUnique finds the distinct elements, or slices along the axis, sorted or in order of their first appearance.
func opUnique(c *call) []*Tensor {
	x := c.in[0]
	if c.attr("axis") == nil {
		x = x.WithShape([]int{x.Len()})
	}
	axis := c.axis(c.int("axis", 0), x.Rank())
	sorted := c.int("sorted", 1) != 0
	n, outer, inner := x.Shape[axis], size(x.Shape[:axis]), size(x.Shape[axis+1:])
	compare := func(p, q int) int {
		for o := range outer {
			for i := range inner {
				if d := x.compareAt((o*n+p)*inner+i, (o*n+q)*inner+i); d != 0 {
					return d
				}
			}
		}
		return 0
	}
	order := upTo(n)
	slices.SortStableFunc(order, compare)
	var firsts []int // the first of each group of equal slices
	group := make([]int, n)
	for i, p := range order {
		if i == 0 || compare(order[i-1], p) != 0 {
			firsts = append(firsts, p)
		}
		group[p] = len(firsts) - 1
	}
	rank := make([]int, len(firsts)) // of a group in the output
	seq := upTo(len(firsts))
	if !sorted {
		slices.SortFunc(seq, func(a, b int) int { return firsts[a] - firsts[b] })
	}
	indices, counts, inverse := make([]int64, len(seq)), make([]int64, len(seq)), make([]int64, n)
	for r, g := range seq {
		rank[g], indices[r] = r, int64(firsts[g])
	}
	for p, g := range group {
		inverse[p] = int64(rank[g])
		counts[rank[g]]++
	}
	return []*Tensor{x.takeRows(axis, toInts(indices)), vector(indices), vector(inverse), vector(counts)}
}
