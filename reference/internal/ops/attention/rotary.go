package attention

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var attentionOps = map[string]op.Def{
	"RotaryEmbedding":                   op.Arith(3, opRotaryEmbedding),
	"Attention":                         op.Arith(3, opAttention),
	"com.microsoft:MultiHeadAttention":  op.Arith(3, opMultiHeadAttention),
	"com.microsoft:GroupQueryAttention": op.Arith(1, opGroupQueryAttention),
	"com.microsoft:PagedAttention":      op.Arith(1, opPagedAttention),
	"SwiGLU":                            op.Arith(2, opSwiGLU),

	"com.microsoft:RotaryEmbedding": op.Arith(4, opMicrosoftRotaryEmbedding),
}

// opSwiGLU is A·sigmoid(alpha·A)·B (opset 28).
func opSwiGLU(c *op.Call) []*tensor.Tensor {
	a, b := c.Floats(0), c.Floats(1)
	alpha := c.Float("alpha", 1)
	if !slices.Equal(a.Shape, b.Shape) {
		tensor.Fail("the shapes %v and %v differ", a.Shape, b.Shape)
	}
	c.SameType(0, 1)
	r := tensor.ZeroFloats(a.DataType, a.Shape)
	for i, x := range a.F {
		r.F[i] = c.RoundOne(a.DataType, x*elementwise.Sigmoid(alpha*x)) * b.F[i]
	}
	return op.One(r)
}

// splitHeads returns x as (batch, heads, sequence, head size). A tensor of rank 3 has the heads packed in its last
// dimension.
func splitHeads(c *op.Call, x *tensor.Tensor, n int) *tensor.Tensor {
	if x.Rank() == 4 {
		return x
	}
	if x.Rank() != 3 || n < 1 || x.Shape[2]%n != 0 {
		tensor.Fail("%s has no %d heads, expected rank 4, or rank 3 with packed heads", x, n)
	}
	s := x.Shape
	return tensor.Transpose(x.WithShape([]int{s[0], s[1], n, s[2] / n}), []int{0, 2, 1, 3})
}

// unheads is the inverse of heads for an op whose input had the given rank.
func unheads(x *tensor.Tensor, rank int) *tensor.Tensor {
	if rank == 4 {
		return x
	}
	s := x.Shape
	return tensor.Transpose(x, []int{0, 2, 1, 3}).WithShape([]int{s[0], s[2], s[1] * s[3]})
}

// opRotaryEmbedding (opset 23) rotates pairs of each head's first rotary_embedding_dim elements, halves or, when
// interleaved, neighbors, by angles given as cosines and sines for each position.
func opRotaryEmbedding(c *op.Call) []*tensor.Tensor {
	x, cos, sin := c.Floats(0), c.Floats(1), c.Floats(2)
	pos, hasPos := c.Integers(3)
	h := splitHeads(c, x, int(c.Int("num_heads", 0)))
	batch, seq, d := h.Shape[0], h.Shape[2], h.Shape[3]
	rot := int(c.Int("rotary_embedding_dim", 0))
	if rot == 0 {
		rot = d
	}
	half := rot / 2
	if rot < 0 || rot > d || rot%2 != 0 {
		tensor.Fail("a rotary_embedding_dim of %d does not fit a head size of %d", rot, d)
	}
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() == 0 || cos.Shape[cos.Rank()-1] != half {
		tensor.Fail("caches of %v and %v, expected rows of %d", cos.Shape, sin.Shape, half)
	}
	y := rotate(c, h, cos, sin, cacheRows(c, cos.Shape, pos, hasPos, batch, seq), c.Int("interleaved", 0) != 0)
	return op.One(unheads(y, x.Rank()))
}

// opMicrosoftRotaryEmbedding is onnxruntime's op. Positions are input 1, one per token or only the first; the tables
// cover all positions. Heads are twice as wide as the tables unless only a part of them is rotated.
func opMicrosoftRotaryEmbedding(c *op.Call) []*tensor.Tensor {
	x, cos, sin := c.Floats(0), c.Floats(2), c.Floats(3)
	pos, _ := c.Integers(1)
	rot, heads := int(c.Int("rotary_embedding_dim", 0)), int(c.Int("num_heads", 0))
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || rot > 0 && (heads == 0 || cos.Shape[1] != rot/2) ||
		cos.Shape[1] == 0 {
		tensor.Fail("caches of %v and %v, %d heads and a rotary_embedding_dim of %d", cos.Shape, sin.Shape, heads, rot)
	}
	half := cos.Shape[1]
	if x.Rank() == 3 && heads == 0 {
		heads = x.Shape[2] / (2 * half)
	}
	h := splitHeads(c, x, heads)
	batch, seq, d := h.Shape[0], h.Shape[2], h.Shape[3]
	if 2*half > d || rot == 0 && 2*half != d {
		tensor.Fail("caches of %v do not fit a head size of %d", cos.Shape, d)
	}
	rows := make([]int, batch*seq)
	for i := range rows {
		switch {
		case len(pos) == len(rows) && c.Arg(1).Rank() == 2:
			rows[i] = c.Index(pos[i], cos.Shape[0])
		case len(pos) == 1 && c.Arg(1).Rank() < 2:
			rows[i] = c.Index(pos[0]+int64(i%seq), cos.Shape[0])
		default:
			tensor.Fail("positions of %v do not fit a batch of %d and a sequence of %d", c.Arg(1).Shape, batch, seq)
		}
	}
	return op.One(unheads(rotate(c, h, cos, sin, rows, c.Int("interleaved", 0) != 0), x.Rank()))
}

// rotate rotates pairs of channels of h, [batch, heads, sequence, channels], by the rows of the tables for each
// position of each sequence.
func rotate(c *op.Call, h, cos, sin *tensor.Tensor, rows []int, interleaved bool) *tensor.Tensor {
	half := cos.Shape[cos.Rank()-1]
	seq, d, t := h.Shape[2], h.Shape[3], h.DataType
	y := tensor.NewFloats(t, h.Shape, slices.Clone(h.F))
	for r := range tensor.Size(h.Shape[:3]) { // one head at one position
		row := rows[r/(h.Shape[1]*seq)*seq+r%seq]
		v := h.F[r*d : (r+1)*d]
		o := y.F[r*d : (r+1)*d]
		for k := range half {
			i, j := k, k+half
			if interleaved {
				i, j = 2*k, 2*k+1
			}
			cv, sv := cos.F[row*half+k], sin.F[row*half+k]
			o[i] = c.RoundOne(t, cv*v[i]) - c.RoundOne(t, sv*v[j])
			o[j] = c.RoundOne(t, sv*v[i]) + c.RoundOne(t, cv*v[j])
		}
	}
	return y
}

// cacheRows returns the row of the cache for each position of each item: picked by position_ids, or in order. A batch
// of one serves all items, as exporters write it.
func cacheRows(c *op.Call, cache []int, pos []int64, hasPos bool, batch, seq int) []int {
	rows := make([]int, batch*seq)
	n := seq // the number of given rows
	if hasPos {
		n = len(pos)
	} else if len(cache) == 3 {
		n = cache[0] * cache[1]
	}
	rank := tensor.Pick(hasPos, 2, 3)
	if len(cache) != rank || n != len(rows) && n != seq || !hasPos && cache[1] != seq {
		tensor.Fail("caches of %v and %d positions do not fit a batch of %d and a sequence of %d", cache, len(pos),
			batch, seq)
	}
	for i := range rows {
		rows[i] = i % n
		if hasPos {
			rows[i] = c.Index(pos[i%n], cache[0])
		}
	}
	return rows
}
