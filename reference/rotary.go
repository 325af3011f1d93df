package reference

import "slices"

var attentionOps = map[string]opDef{
	"RotaryEmbedding":                   arith(3, opRotaryEmbedding),
	"Attention":                         arith(3, opAttention),
	"com.microsoft:MultiHeadAttention":  arith(3, opMultiHeadAttention),
	"com.microsoft:GroupQueryAttention": arith(1, opGroupQueryAttention),
	"com.microsoft:PagedAttention":      arith(1, opPagedAttention),
	"SwiGLU":                            arith(2, opSwiGLU),

	"com.microsoft:RotaryEmbedding": arith(4, opMicrosoftRotaryEmbedding),
}

// opSwiGLU is A·sigmoid(alpha·A)·B (opset 28).
func opSwiGLU(c *call) []*Tensor {
	a, b := c.floats(0), c.floats(1)
	alpha := c.float("alpha", 1)
	if !slices.Equal(a.Shape, b.Shape) {
		fail("the shapes %v and %v differ", a.Shape, b.Shape)
	}
	c.sameType(0, 1)
	r := newFloats(a.DataType, a.Shape)
	for i, x := range a.F {
		r.F[i] = c.roundOne(a.DataType, x*sigmoid(alpha*x)) * b.F[i]
	}
	return one(r)
}

// heads returns x as (batch, heads, sequence, head size). A tensor of rank 3 has the heads packed in its last
// dimension.
func (c *call) heads(x *Tensor, n int) *Tensor {
	if x.Rank() == 4 {
		return x
	}
	if x.Rank() != 3 || n < 1 || x.Shape[2]%n != 0 {
		fail("%s has no %d heads, expected rank 4, or rank 3 with packed heads", x, n)
	}
	s := x.Shape
	return x.WithShape([]int{s[0], s[1], n, s[2] / n}).transpose([]int{0, 2, 1, 3})
}

// unheads is the inverse of heads for an op whose input had the given rank.
func unheads(x *Tensor, rank int) *Tensor {
	if rank == 4 {
		return x
	}
	s := x.Shape
	return x.transpose([]int{0, 2, 1, 3}).WithShape([]int{s[0], s[2], s[1] * s[3]})
}

// opRotaryEmbedding (opset 23) rotates pairs of each head's first rotary_embedding_dim elements, halves or, when
// interleaved, neighbors, by angles given as cosines and sines for each position.
func opRotaryEmbedding(c *call) []*Tensor {
	x, cos, sin := c.floats(0), c.floats(1), c.floats(2)
	pos, hasPos := c.integers(3)
	h := c.heads(x, int(c.int("num_heads", 0)))
	batch, seq, d := h.Shape[0], h.Shape[2], h.Shape[3]
	rot := int(c.int("rotary_embedding_dim", 0))
	if rot == 0 {
		rot = d
	}
	half := rot / 2
	if rot < 0 || rot > d || rot%2 != 0 {
		fail("a rotary_embedding_dim of %d does not fit a head size of %d", rot, d)
	}
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() == 0 || cos.Shape[cos.Rank()-1] != half {
		fail("caches of %v and %v, expected rows of %d", cos.Shape, sin.Shape, half)
	}
	y := c.rotate(h, cos, sin, c.cacheRows(cos.Shape, pos, hasPos, batch, seq), c.int("interleaved", 0) != 0)
	return one(unheads(y, x.Rank()))
}

// opMicrosoftRotaryEmbedding is onnxruntime's op. Positions are input 1, one per token or only the first; the tables
// cover all positions. Heads are twice as wide as the tables unless only a part of them is rotated.
func opMicrosoftRotaryEmbedding(c *call) []*Tensor {
	x, cos, sin := c.floats(0), c.floats(2), c.floats(3)
	pos, _ := c.integers(1)
	rot, heads := int(c.int("rotary_embedding_dim", 0)), int(c.int("num_heads", 0))
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || rot > 0 && (heads == 0 || cos.Shape[1] != rot/2) ||
		cos.Shape[1] == 0 {
		fail("caches of %v and %v, %d heads and a rotary_embedding_dim of %d", cos.Shape, sin.Shape, heads, rot)
	}
	half := cos.Shape[1]
	if x.Rank() == 3 && heads == 0 {
		heads = x.Shape[2] / (2 * half)
	}
	h := c.heads(x, heads)
	batch, seq, d := h.Shape[0], h.Shape[2], h.Shape[3]
	if 2*half > d || rot == 0 && 2*half != d {
		fail("caches of %v do not fit a head size of %d", cos.Shape, d)
	}
	rows := make([]int, batch*seq)
	for i := range rows {
		switch {
		case len(pos) == len(rows) && c.arg(1).Rank() == 2:
			rows[i] = c.index(pos[i], cos.Shape[0])
		case len(pos) == 1 && c.arg(1).Rank() < 2:
			rows[i] = c.index(pos[0]+int64(i%seq), cos.Shape[0])
		default:
			fail("positions of %v do not fit a batch of %d and a sequence of %d", c.arg(1).Shape, batch, seq)
		}
	}
	return one(unheads(c.rotate(h, cos, sin, rows, c.int("interleaved", 0) != 0), x.Rank()))
}

// rotate rotates pairs of channels of h, [batch, heads, sequence, channels], by the rows of the tables for each
// position of each sequence.
func (c *call) rotate(h, cos, sin *Tensor, rows []int, interleaved bool) *Tensor {
	half := cos.Shape[cos.Rank()-1]
	seq, d, t := h.Shape[2], h.Shape[3], h.DataType
	y := NewFloats(t, h.Shape, slices.Clone(h.F))
	for r := range size(h.Shape[:3]) { // one head at one position
		row := rows[r/(h.Shape[1]*seq)*seq+r%seq]
		v := h.F[r*d : (r+1)*d]
		o := y.F[r*d : (r+1)*d]
		for k := range half {
			i, j := k, k+half
			if interleaved {
				i, j = 2*k, 2*k+1
			}
			cv, sv := cos.F[row*half+k], sin.F[row*half+k]
			o[i] = c.roundOne(t, cv*v[i]) - c.roundOne(t, sv*v[j])
			o[j] = c.roundOne(t, sv*v[i]) + c.roundOne(t, cv*v[j])
		}
	}
	return y
}

// cacheRows returns the row of the cache for each position of each item: picked by position_ids, or in order. A batch
// of one serves all items, as exporters write it.
func (c *call) cacheRows(cache []int, pos []int64, hasPos bool, batch, seq int) []int {
	rows := make([]int, batch*seq)
	n := seq // the number of given rows
	if hasPos {
		n = len(pos)
	} else if len(cache) == 3 {
		n = cache[0] * cache[1]
	}
	rank := pick(hasPos, 2, 3)
	if len(cache) != rank || n != len(rows) && n != seq || !hasPos && cache[1] != seq {
		fail("caches of %v and %d positions do not fit a batch of %d and a sequence of %d", cache, len(pos), batch,
			seq)
	}
	for i := range rows {
		rows[i] = i % n
		if hasPos {
			rows[i] = c.index(pos[i%n], cache[0])
		}
	}
	return rows
}
