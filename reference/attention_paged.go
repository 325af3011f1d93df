package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// opPagedAttention is onnxruntime's op, without norms and quantized or latent caches. The new tokens of a sequence are
// rows of query, key and value, or only of query, which then holds all three. do_rotary rotates queries and keys by
// the rows of the tables at their positions. All keys of a sequence are in blocks of the caches, which the block table
// lists. Scores are not rounded: the CUDA kernels keep them in float32.
func opPagedAttention(c *call) []*Tensor {
	for i := 12; i < len(c.in); i++ {
		if c.in[i] != nil && i != 16 {
			fail("%w: input %d", ErrUnsupported, i)
		}
	}
	if c.str("kv_cache_layout", "SEPARATE") != "SEPARATE" || c.int("rotary_offset", 0) != 0 {
		fail("%w: latents, or a rotation of other channels than the first", ErrUnsupported)
	}
	heads, kv := int(c.int("num_heads", 0)), int(c.int("kv_num_heads", 0))
	q, k, v := c.tokenRows(heads, kv)
	keys, values := c.floats(3), c.floats(4)
	cum, _ := c.integers(5)
	past, _ := c.integers(6)
	table, slots := c.arg(7), c.arg(10)
	if keys.Rank() != 4 || keys.Shape[2] != kv || keys.Shape[3]*heads != q.Shape[1] ||
		!slices.Equal(values.Shape, keys.Shape) || !slices.Equal(v.Shape, k.Shape) ||
		!slices.Equal(k.Shape, []int{q.Shape[0], kv * keys.Shape[3]}) ||
		len(cum) != len(past)+1 || table.Rank() != 2 || table.Shape[0] != len(past) {
		fail("queries of %v, keys of %v, values of %v, caches of %v and %v, and %d lengths do not fit", q.Shape,
			k.Shape, v.Shape, keys.Shape, values.Shape, len(past))
	}
	checkBounds(c, cum, past)
	if c.int("do_rotary", 0) != 0 {
		rows := make([]int, q.Shape[0])
		for s := range past {
			for t := cum[s]; t < cum[s+1]; t++ {
				rows[t] = c.index(past[s]+t-cum[s], c.floats(8).Shape[0])
			}
		}
		q, k = c.rotateRows(q, heads, rows), c.rotateRows(k, kv, rows)
	}
	block, width, row := keys.Shape[1], keys.Shape[3], k.Shape[1]
	place := func(s, at int) int { // the row of a token in the caches
		if at/block >= table.Shape[1] || table.I[s*table.Shape[1]+at/block] < 0 {
			fail("sequence %d has no block for token %d", s, at)
		}
		return c.index(table.I[s*table.Shape[1]+at/block], keys.Shape[0])*block + at%block
	}
	keys, values = keys.WithShape(keys.Shape), values.WithShape(values.Shape)
	keys.F, values.F = slices.Clone(keys.F), slices.Clone(values.F)
	for s := range past {
		for t := cum[s]; t < cum[s+1]; t++ {
			slot := place(s, int(past[s]+t-cum[s]))
			if slots != nil {
				if slots.I[t] < 0 {
					continue
				}
				slot = c.index(slots.I[t], len(keys.F)/row)
			}
			copy(keys.F[slot*row:(slot+1)*row], k.F[int(t)*row:])
			copy(values.F[slot*row:(slot+1)*row], v.F[int(t)*row:])
		}
	}
	var sinks []float64
	if c.arg(11) != nil {
		if sinks = c.floats(11).F; len(sinks) != heads {
			fail("a head_sink of %s for %d heads", c.arg(11), heads)
		}
	}
	y := newFloats(q.DataType, q.Shape)
	for s := range past {
		added := int(cum[s+1] - cum[s])
		if added == 0 {
			continue
		}
		a := &attention{typ: onnx.Double, soft: onnx.Double, causal: c.int("is_causal", 1) != 0,
			softcap: c.float("softcap", 0), window: [2]int64{-1, -1}, first: []int64{past[s]}, sinks: sinks,
			scale: math.Sqrt(c.float("scale", 1/math.Sqrt(float64(width))))}
		if w := c.int("local_window_size", -1); w > 0 {
			a.window[0] = w - 1
		}
		of := func(cache *Tensor) *Tensor {
			var list []float64
			for j := range int(past[s]) + added {
				at := place(s, j) * row
				list = append(list, cache.F[at:at+row]...)
			}
			return c.heads(NewFloats(q.DataType, []int{1, len(list) / row, row}, list), kv)
		}
		from, to := int(cum[s])*q.Shape[1], int(cum[s+1])*q.Shape[1]
		a.q = c.heads(NewFloats(q.DataType, []int{1, added, q.Shape[1]}, q.F[from:to]), heads)
		a.k, a.v = of(keys), of(values)
		out, _ := a.run(c)
		copy(y.F[from:to], unheads(out, 3).F)
	}
	return []*Tensor{y, keys, values}
}

// tokenRows returns queries, keys and values as [tokens, heads * width].
func (c *call) tokenRows(heads, kv int) (q, k, v *Tensor) {
	q = c.floats(0)
	if q.Rank() != 2 || heads < 1 || kv < 1 || heads%kv != 0 || (c.arg(1) == nil) != (c.arg(2) == nil) {
		fail("queries of %v of %d heads, and keys of %d", q.Shape, heads, kv)
	}
	if c.arg(1) != nil {
		return q, c.floats(1), c.floats(2)
	}
	if q.Shape[1]%(heads+2*kv) != 0 {
		fail("%v does not hold %d heads of queries and twice %d of keys", q.Shape, heads, kv)
	}
	width, all := q.Shape[1]/(heads+2*kv), q.WithShape([]int{1, q.Shape[0], q.Shape[1]})
	some := func(from, to int) *Tensor {
		y := unheads(c.heads(all, heads+2*kv).someHeads(from, to), 3)
		return y.WithShape([]int{q.Shape[0], (to - from) * width})
	}
	return some(0, heads), some(heads, heads+kv), some(heads+kv, heads+2*kv)
}

// rotateRows rotates the heads of each token by a row of the tables, inputs 8 and 9.
func (c *call) rotateRows(x *Tensor, heads int, rows []int) *Tensor {
	cos, sin := c.floats(8), c.floats(9)
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || cos.Shape[1]%8 != 0 ||
		2*cos.Shape[1]*heads > x.Shape[1] {
		fail("tables of %v and %v do not fit %d heads in %v: a row has a multiple of 8 numbers, up to half a head",
			cos.Shape, sin.Shape, heads, x.Shape)
	}
	h := c.heads(x.WithShape([]int{1, x.Shape[0], x.Shape[1]}), heads)
	return unheads(c.rotate(h, cos, sin, rows, c.int("rotary_interleaved", 0) != 0), 3).WithShape(x.Shape)
}

// checkBounds checks attention_metadata: bounds of the most new tokens and of the most keys of a sequence, and the
// least that the most keys can be. The op computes nothing from them. It sizes its work by them, so wrong bounds are
// an error.
func checkBounds(c *call, cum, past []int64) {
	bounds, given := c.integers(16)
	if !given {
		return
	}
	var added, keys int64
	for s := range past {
		n := cum[s+1] - cum[s]
		added, keys = max(added, n), max(keys, past[s]+n)
	}
	if len(bounds) != 3 || bounds[0] < added || bounds[1] < keys || bounds[2] > keys {
		fail("attention_metadata %v does not bound %d new tokens and %d keys", bounds, added, keys)
	}
}
