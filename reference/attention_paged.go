package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// opPagedAttention is onnxruntime's op, without rotation, norms, sinks and quantized or latent caches. The new tokens
// of a sequence are rows of query, key and value; all its keys are in blocks of the caches, which the block table
// lists. Scores are not rounded: the CUDA kernels keep them in float32.
func opPagedAttention(c *call) []*Tensor {
	for i := 8; i < len(c.in); i++ {
		if c.in[i] != nil && i != 10 && i != 16 {
			fail("%w: input %d", ErrUnsupported, i)
		}
	}
	if c.int("do_rotary", 0) != 0 || c.str("kv_cache_layout", "SEPARATE") != "SEPARATE" || c.arg(1) == nil {
		fail("%w: a rotation, latents or packed queries, keys and values", ErrUnsupported)
	}
	q, k, v, keys, values := c.floats(0), c.floats(1), c.floats(2), c.floats(3), c.floats(4)
	heads, kv := int(c.int("num_heads", 0)), int(c.int("kv_num_heads", 0))
	cum, _ := c.integers(5)
	past, _ := c.integers(6)
	table, slots := c.arg(7), c.arg(10)
	if q.Rank() != 2 || keys.Rank() != 4 || heads < 1 || kv < 1 || heads%kv != 0 || q.Shape[1]%heads != 0 ||
		keys.Shape[2] != kv || keys.Shape[3]*heads != q.Shape[1] || !slices.Equal(values.Shape, keys.Shape) ||
		!slices.Equal(k.Shape, []int{q.Shape[0], kv * keys.Shape[3]}) || !slices.Equal(v.Shape, k.Shape) ||
		len(cum) != len(past)+1 || table.Rank() != 2 || table.Shape[0] != len(past) {
		fail("queries of %v, keys of %v, values of %v, caches of %v and %v, and %d lengths do not fit", q.Shape,
			k.Shape, v.Shape, keys.Shape, values.Shape, len(past))
	}
	checkBounds(c, cum, past)
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
	y := newFloats(q.DataType, q.Shape)
	for s := range past {
		added := int(cum[s+1] - cum[s])
		if added == 0 {
			continue
		}
		a := &attention{typ: onnx.Double, soft: onnx.Double, causal: c.int("is_causal", 1) != 0,
			softcap: c.float("softcap", 0), window: [2]int64{-1, -1}, first: []int64{past[s]},
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
