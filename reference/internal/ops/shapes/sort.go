package shapes

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var sortOps = map[string]op.Def{
	"TopK":   op.Plain(1, opTopK),
	"Unique": op.Plain(1, opUnique),
}

// compareAt orders two elements; NaN counts as the greatest, as in PyTorch and numpy.
func compareAt(t *tensor.Tensor, i, j int) int {
	switch {
	case t.F != nil:
		x, y := t.F[i], t.F[j]
		if x != x || y != y {
			return cmp.Compare(tensor.BoolInt(x != x), tensor.BoolInt(y != y))
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
func opTopK(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	k := c.Integer(1, c.Int("k", -1))
	axis := c.Axis(c.Int("axis", -1), x.Rank())
	largest := c.Int("largest", 1) != 0
	n, inner := x.Shape[axis], tensor.Size(x.Shape[axis+1:])
	if k < 0 || k > int64(n) {
		tensor.Fail("k is %d, dimension %d has %d elements", k, axis, n)
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = int(k)
	off := make([]int, tensor.Size(shape))
	at := make([]int64, len(off))
	order := make([]int, n)
	for line := range tensor.Size(x.Shape[:axis]) * inner {
		o, i := line/inner, line%inner
		for j := range order {
			order[j] = (o*n+j)*inner + i
		}
		slices.SortStableFunc(order, func(p, q int) int {
			if largest {
				return compareAt(x, q, p)
			}
			return compareAt(x, p, q)
		})
		for j, p := range order[:k] {
			r := (o*int(k)+j)*inner + i
			off[r], at[r] = p, int64(p/inner%n)
		}
	}
	return []*tensor.Tensor{tensor.Take(x, shape, off), tensor.NewInts(onnx.Int64, shape, at)}
}

// opUnique finds the distinct elements, or slices along the axis, sorted or in order of their first appearance.
func opUnique(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	if c.Attr("axis") == nil {
		x = x.WithShape([]int{x.Len()})
	}
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	sorted := c.Int("sorted", 1) != 0
	n, outer, inner := x.Shape[axis], tensor.Size(x.Shape[:axis]), tensor.Size(x.Shape[axis+1:])
	compare := func(p, q int) int {
		for o := range outer {
			for i := range inner {
				if d := compareAt(x, (o*n+p)*inner+i, (o*n+q)*inner+i); d != 0 {
					return d
				}
			}
		}
		return 0
	}
	order := tensor.UpTo(n)
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
	seq := tensor.UpTo(len(firsts))
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
	return []*tensor.Tensor{tensor.TakeRows(x, axis, tensor.ToInts(indices)), tensor.Vector(indices),
		tensor.Vector(inverse), tensor.Vector(counts)}
}
