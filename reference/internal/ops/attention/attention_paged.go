package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// opPagedAttention is onnxruntime's op, without norms and quantized or latent caches. The new tokens of a sequence are
// rows of query, key and value, or only of query, which then holds all three. do_rotary rotates queries and keys by
// the rows of the tables at their positions. All keys of a sequence are in blocks of the caches, which the block table
// lists. Scores are not rounded: the CUDA kernels keep them in float32.
func opPagedAttention(c *op.Call) []*tensor.Tensor {
	for i := 12; i < len(c.In); i++ {
		if c.In[i] != nil && i != 16 {
			tensor.Fail("%w: input %d", op.ErrUnsupported, i)
		}
	}
	if c.Str("kv_cache_layout", "SEPARATE") != "SEPARATE" || c.Int("rotary_offset", 0) != 0 {
		tensor.Fail("%w: latents, or a rotation of other channels than the first", op.ErrUnsupported)
	}
	heads, kv := int(c.Int("num_heads", 0)), int(c.Int("kv_num_heads", 0))
	q, k, v := tokenRows(c, heads, kv)
	keys, values := c.Floats(3), c.Floats(4)
	cum, _ := c.Integers(5)
	past, _ := c.Integers(6)
	table, slots := c.Arg(7), c.Arg(10)
	if keys.Rank() != 4 || keys.Shape[2] != kv || keys.Shape[3]*heads != q.Shape[1] ||
		!slices.Equal(values.Shape, keys.Shape) || !slices.Equal(v.Shape, k.Shape) ||
		!slices.Equal(k.Shape, []int{q.Shape[0], kv * keys.Shape[3]}) ||
		len(cum) != len(past)+1 || table.Rank() != 2 || table.Shape[0] != len(past) {
		tensor.Fail("queries of %v, keys of %v, values of %v, caches of %v and %v, and %d lengths do not fit", q.Shape,
			k.Shape, v.Shape, keys.Shape, values.Shape, len(past))
	}
	checkBounds(c, cum, past)
	if c.Int("do_rotary", 0) != 0 {
		rows := make([]int, q.Shape[0])
		for s := range past {
			for t := cum[s]; t < cum[s+1]; t++ {
				rows[t] = c.Index(past[s]+t-cum[s], c.Floats(8).Shape[0])
			}
		}
		q, k = rotateRows(c, q, heads, rows), rotateRows(c, k, kv, rows)
	}
	block, width, row := keys.Shape[1], keys.Shape[3], k.Shape[1]
	place := func(s, at int) int { // the row of a token in the caches
		if at/block >= table.Shape[1] || table.I[s*table.Shape[1]+at/block] < 0 {
			tensor.Fail("sequence %d has no block for token %d", s, at)
		}
		return c.Index(table.I[s*table.Shape[1]+at/block], keys.Shape[0])*block + at%block
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
				slot = c.Index(slots.I[t], len(keys.F)/row)
			}
			copy(keys.F[slot*row:(slot+1)*row], k.F[int(t)*row:])
			copy(values.F[slot*row:(slot+1)*row], v.F[int(t)*row:])
		}
	}
	var sinks []float64
	if c.Arg(11) != nil {
		if sinks = c.Floats(11).F; len(sinks) != heads {
			tensor.Fail("a head_sink of %s for %d heads", c.Arg(11), heads)
		}
	}
	y := tensor.ZeroFloats(q.DataType, q.Shape)
	for s := range past {
		added := int(cum[s+1] - cum[s])
		if added == 0 {
			continue
		}
		a := &attention{typ: onnx.Double, soft: onnx.Double, causal: c.Int("is_causal", 1) != 0,
			softcap: c.Float("softcap", 0), window: [2]int64{-1, -1}, first: []int64{past[s]}, sinks: sinks,
			scale: math.Sqrt(c.Float("scale", 1/math.Sqrt(float64(width))))}
		if w := c.Int("local_window_size", -1); w > 0 {
			a.window[0] = w - 1
		}
		of := func(cache *tensor.Tensor) *tensor.Tensor {
			var list []float64
			for j := range int(past[s]) + added {
				at := place(s, j) * row
				list = append(list, cache.F[at:at+row]...)
			}
			return splitHeads(c, tensor.NewFloats(q.DataType, []int{1, len(list) / row, row}, list), kv)
		}
		from, to := int(cum[s])*q.Shape[1], int(cum[s+1])*q.Shape[1]
		a.q = splitHeads(c, tensor.NewFloats(q.DataType, []int{1, added, q.Shape[1]}, q.F[from:to]), heads)
		a.k, a.v = of(keys), of(values)
		out, _ := a.run(c)
		copy(y.F[from:to], unheads(out, 3).F)
	}
	return []*tensor.Tensor{y, keys, values}
}

// tokenRows returns queries, keys and values as [tokens, heads * width].
func tokenRows(c *op.Call, heads, kv int) (q, k, v *tensor.Tensor) {
	q = c.Floats(0)
	if q.Rank() != 2 || heads < 1 || kv < 1 || heads%kv != 0 || (c.Arg(1) == nil) != (c.Arg(2) == nil) {
		tensor.Fail("queries of %v of %d heads, and keys of %d", q.Shape, heads, kv)
	}
	if c.Arg(1) != nil {
		return q, c.Floats(1), c.Floats(2)
	}
	if q.Shape[1]%(heads+2*kv) != 0 {
		tensor.Fail("%v does not hold %d heads of queries and twice %d of keys", q.Shape, heads, kv)
	}
	width, all := q.Shape[1]/(heads+2*kv), q.WithShape([]int{1, q.Shape[0], q.Shape[1]})
	some := func(from, to int) *tensor.Tensor {
		y := unheads(someHeads(splitHeads(c, all, heads+2*kv), from, to), 3)
		return y.WithShape([]int{q.Shape[0], (to - from) * width})
	}
	return some(0, heads), some(heads, heads+kv), some(heads+kv, heads+2*kv)
}

// rotateRows rotates the heads of each token by a row of the tables, inputs 8 and 9.
func rotateRows(c *op.Call, x *tensor.Tensor, heads int, rows []int) *tensor.Tensor {
	cos, sin := c.Floats(8), c.Floats(9)
	if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || cos.Shape[1]%8 != 0 ||
		2*cos.Shape[1]*heads > x.Shape[1] {
		tensor.Fail("tables of %v and %v do not fit %d heads in %v: a row has a multiple of 8 numbers, up to half a "+
			"head", cos.Shape, sin.Shape, heads, x.Shape)
	}
	h := splitHeads(c, x.WithShape([]int{1, x.Shape[0], x.Shape[1]}), heads)
	return unheads(rotate(c, h, cos, sin, rows, c.Int("rotary_interleaved", 0) != 0), 3).WithShape(x.Shape)
}

// checkBounds checks attention_metadata: bounds of the most new tokens and of the most keys of a sequence, and the
// least that the most keys can be. The op computes nothing from them. It sizes its work by them, so wrong bounds are
// an error.
func checkBounds(c *op.Call, cum, past []int64) {
	bounds, given := c.Integers(16)
	if !given {
		return
	}
	var added, keys int64
	for s := range past {
		n := cum[s+1] - cum[s]
		added, keys = max(added, n), max(keys, past[s]+n)
	}
	if len(bounds) != 3 || bounds[0] < added || bounds[1] < keys || bounds[2] > keys {
		tensor.Fail("attention_metadata %v does not bound %d new tokens and %d keys", bounds, added, keys)
	}
}
