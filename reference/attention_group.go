package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// opGroupQueryAttention is onnxruntime's op. Each sequence of a batch has its own length, seqlens_k + 1 including the
// new tokens. These follow the cached tokens, or in a prompt start at the front with padding after them. Present is as
// long as past or the longest sequence, and zero in unused places. onnxruntime accepts several tokens after a past only
// in batches of one; here any batch works.
func opGroupQueryAttention(c *call) []*Tensor {
	if c.int("sliding_window_cache", 0) != 0 || c.int("qk_output", 0) != 0 || c.int("kv_cache_bit_width", 0) != 0 ||
		c.arg(14) != nil || c.arg(15) != nil {
		fail("caches of a window or of integers, norms inside and the scores as an output are not supported")
	}
	heads, kv := int(c.int("num_heads", 0)), int(c.int("kv_num_heads", 0))
	q, k, v := c.queryKeyValue(heads, kv)
	a := &attention{typ: q.DataType, soft: onnx.Double, causal: c.int("causal", 1) != 0, softcap: c.float("softcap", 0),
		window: [2]int64{-1, -1}}
	if w := c.int("local_window_size", -1); w > 0 {
		a.window[0] = w - 1
	}
	a.scale = c.float("scale", 0)
	if a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(q.Shape[3]))
	}
	a.scale = math.Sqrt(a.scale)
	batch, added := q.Shape[0], int64(q.Shape[2])
	lengths, _ := c.integers(5)
	total := c.integer(6, 0)
	if len(lengths) != batch || total < added {
		fail("%d lengths for a batch of %d, and %d tokens with %d new ones", len(lengths), batch, total, added)
	}
	for _, n := range lengths {
		a.valid = append(a.valid, n+1)
		first := int64(0)
		if total > added { // else it is a prompt
			first = n + 1 - added
		}
		if a.first = append(a.first, first); first < 0 || n < 0 || n >= total {
			fail("a sequence of %d tokens, of which %d are new, and %d at most", n+1, added, total)
		}
	}
	if c.int("do_rotary", 0) != 0 {
		rows := c.tokenPositions(a.first, int(added), total == added)
		cos, sin, interleaved := c.floats(7), c.floats(8), c.int("rotary_interleaved", 0) != 0
		if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || 2*cos.Shape[1] > q.Shape[3] {
			fail("tables of %v and %v do not fit a head size of %d", cos.Shape, sin.Shape, q.Shape[3])
		}
		q, k = c.rotate(q, cos, sin, rows, interleaved), c.rotate(k, cos, sin, rows, interleaved)
	}
	a.q = q
	a.k, a.v = a.stored(c.arg(3), k, total), a.stored(c.arg(4), v, total)
	if m := c.arg(10); m != nil {
		a.mask = c.attentionMask(m, []int{batch, heads, int(added), a.k.Shape[2]})
	}
	if s := c.arg(11); s != nil {
		if a.sinks = c.floats(11).F; len(a.sinks) != heads {
			fail("a head_sink of %s for %d heads", s, heads)
		}
	} else if c.int("smooth_softmax", 0) == 1 {
		a.sinks = make([]float64, heads)
	}
	y, _ := a.run(c)
	return []*Tensor{unheads(y, 3), a.k, a.v}
}

// queryKeyValue returns the first three inputs by heads. Keys and values may follow the queries in one tensor.
func (c *call) queryKeyValue(heads, kv int) (q, k, v *Tensor) {
	q = c.floats(0)
	if heads < 1 || kv < 1 || heads%kv != 0 || q.Rank() != 3 || (c.arg(1) == nil) != (c.arg(2) == nil) {
		fail("queries of %v of %d heads, and keys of %d", q.Shape, heads, kv)
	}
	if c.arg(1) == nil {
		all := c.heads(q, heads+2*kv)
		return all.someHeads(0, heads), all.someHeads(heads, heads+kv), all.someHeads(heads+kv, heads+2*kv)
	}
	q, k, v = c.heads(q, heads), c.heads(c.floats(1), kv), c.heads(c.floats(2), kv)
	if !slices.Equal(k.Shape, []int{q.Shape[0], kv, q.Shape[2], q.Shape[3]}) || !slices.Equal(v.Shape, k.Shape) {
		fail("queries of %v, keys of %v and values of %v do not fit", q.Shape, k.Shape, v.Shape)
	}
	return q, k, v
}

// someHeads returns heads of a tensor of [batch, heads, sequence, head size].
func (t *Tensor) someHeads(from, to int) *Tensor {
	n, of := size(t.Shape[2:]), t.Shape[1]
	y := newFloats(t.DataType, []int{t.Shape[0], to - from, t.Shape[2], t.Shape[3]})
	for b := range t.Shape[0] {
		copy(y.F[b*(to-from)*n:(b+1)*(to-from)*n], t.F[(b*of+from)*n:(b*of+to)*n])
	}
	return y
}

// tokenPositions returns the table row of each new token: its position, unless positions are given. A prompt counts
// from the first given position.
func (c *call) tokenPositions(first []int64, added int, prompt bool) []int {
	given, _ := c.integers(9)
	length := c.floats(7).Shape[0]
	if given != nil && len(given) != len(first)*added {
		fail("%d positions for %d tokens", len(given), len(first)*added)
	}
	rows := make([]int, len(first)*added)
	for i := range rows {
		at := first[i/added] + int64(i%added)
		switch {
		case given != nil && prompt:
			at = given[0] + int64(i%added)
		case given != nil:
			at = given[i]
		}
		rows[i] = c.index(at, length)
	}
	return rows
}

// stored returns past with the new rows inserted.
func (a *attention) stored(past, now *Tensor, total int64) *Tensor {
	s := now.Shape
	rows := int(total)
	if past != nil {
		if past.Rank() != 4 || past.Shape[0] != s[0] || past.Shape[1] != s[1] || past.Shape[3] != s[3] {
			fail("a past of %s does not fit %s", past, now)
		}
		rows = max(rows, past.Shape[2])
	}
	y := newFloats(now.DataType, []int{s[0], s[1], rows, s[3]})
	for h := range s[0] * s[1] {
		first := int(a.first[h/s[1]])
		to := y.F[h*rows*s[3] : (h+1)*rows*s[3]]
		if first > 0 {
			if past == nil || past.Shape[2] < first {
				fail("a past of %s does not hold %d tokens", past, first)
			}
			copy(to[:first*s[3]], past.F[h*past.Shape[2]*s[3]:])
		}
		copy(to[first*s[3]:], now.F[h*s[2]*s[3]:(h+1)*s[2]*s[3]])
	}
	return y
}
