package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// opGroupQueryAttention is onnxruntime's op. Each sequence of a batch has its own length, seqlens_k + 1 including the
// new tokens. These follow the cached tokens, or in a prompt start at the front with padding after them. Present is as
// long as past or the longest sequence, and zero in unused places. onnxruntime accepts several tokens after a past only
// in batches of one; here any batch works.
func opGroupQueryAttention(c *op.Call) []*tensor.Tensor {
	if c.Int("sliding_window_cache", 0) != 0 || c.Int("qk_output", 0) != 0 || c.Int("kv_cache_bit_width", 0) != 0 ||
		c.Arg(14) != nil || c.Arg(15) != nil {
		tensor.Fail("caches of a window or of integers, norms inside and the scores as an output are not supported")
	}
	heads, kv := int(c.Int("num_heads", 0)), int(c.Int("kv_num_heads", 0))
	q, k, v := queryKeyValue(c, heads, kv)
	a := &attention{typ: q.DataType, soft: onnx.Double, causal: c.Int("causal", 1) != 0, softcap: c.Float("softcap", 0),
		window: [2]int64{-1, -1}}
	if w := c.Int("local_window_size", -1); w > 0 {
		a.window[0] = w - 1
	}
	a.scale = c.Float("scale", 0)
	if a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(q.Shape[3]))
	}
	a.scale = math.Sqrt(a.scale)
	batch, added := q.Shape[0], int64(q.Shape[2])
	lengths, _ := c.Integers(5)
	total := c.Integer(6, 0)
	if len(lengths) != batch || total < added {
		tensor.Fail("%d lengths for a batch of %d, and %d tokens with %d new ones", len(lengths), batch, total, added)
	}
	for _, n := range lengths {
		a.valid = append(a.valid, n+1)
		first := int64(0)
		if total > added { // else it is a prompt
			first = n + 1 - added
		}
		if a.first = append(a.first, first); first < 0 || n < 0 || n >= total {
			tensor.Fail("a sequence of %d tokens, of which %d are new, and %d at most", n+1, added, total)
		}
	}
	if c.Int("do_rotary", 0) != 0 {
		rows := tokenPositions(c, a.first, int(added), total == added)
		cos, sin, interleaved := c.Floats(7), c.Floats(8), c.Int("rotary_interleaved", 0) != 0
		if !slices.Equal(cos.Shape, sin.Shape) || cos.Rank() != 2 || 2*cos.Shape[1] > q.Shape[3] {
			tensor.Fail("tables of %v and %v do not fit a head size of %d", cos.Shape, sin.Shape, q.Shape[3])
		}
		q, k = rotate(c, q, cos, sin, rows, interleaved), rotate(c, k, cos, sin, rows, interleaved)
	}
	a.q = q
	a.k, a.v = a.stored(c.Arg(3), k, total), a.stored(c.Arg(4), v, total)
	if m := c.Arg(10); m != nil {
		a.mask = attentionMask(c, m, []int{batch, heads, int(added), a.k.Shape[2]})
	}
	if s := c.Arg(11); s != nil {
		if a.sinks = c.Floats(11).F; len(a.sinks) != heads {
			tensor.Fail("a head_sink of %s for %d heads", s, heads)
		}
	} else if c.Int("smooth_softmax", 0) == 1 {
		a.sinks = make([]float64, heads)
	}
	y, _ := a.run(c)
	return []*tensor.Tensor{unheads(y, 3), a.k, a.v}
}

// queryKeyValue returns the first three inputs by heads. Keys and values may follow the queries in one tensor.
func queryKeyValue(c *op.Call, heads, kv int) (q, k, v *tensor.Tensor) {
	q = c.Floats(0)
	if heads < 1 || kv < 1 || heads%kv != 0 || q.Rank() != 3 || (c.Arg(1) == nil) != (c.Arg(2) == nil) {
		tensor.Fail("queries of %v of %d heads, and keys of %d", q.Shape, heads, kv)
	}
	if c.Arg(1) == nil {
		all := splitHeads(c, q, heads+2*kv)
		return someHeads(all, 0, heads), someHeads(all, heads, heads+kv), someHeads(all, heads+kv, heads+2*kv)
	}
	q, k, v = splitHeads(c, q, heads), splitHeads(c, c.Floats(1), kv), splitHeads(c, c.Floats(2), kv)
	if !slices.Equal(k.Shape, []int{q.Shape[0], kv, q.Shape[2], q.Shape[3]}) || !slices.Equal(v.Shape, k.Shape) {
		tensor.Fail("queries of %v, keys of %v and values of %v do not fit", q.Shape, k.Shape, v.Shape)
	}
	return q, k, v
}

// someHeads returns heads of a tensor of [batch, heads, sequence, head size].
func someHeads(t *tensor.Tensor, from, to int) *tensor.Tensor {
	n, of := tensor.Size(t.Shape[2:]), t.Shape[1]
	y := tensor.ZeroFloats(t.DataType, []int{t.Shape[0], to - from, t.Shape[2], t.Shape[3]})
	for b := range t.Shape[0] {
		copy(y.F[b*(to-from)*n:(b+1)*(to-from)*n], t.F[(b*of+from)*n:(b*of+to)*n])
	}
	return y
}

// tokenPositions returns the table row of each new token: its position, unless positions are given. A prompt counts
// from the first given position.
func tokenPositions(c *op.Call, first []int64, added int, prompt bool) []int {
	given, _ := c.Integers(9)
	length := c.Floats(7).Shape[0]
	if given != nil && len(given) != len(first)*added {
		tensor.Fail("%d positions for %d tokens", len(given), len(first)*added)
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
		rows[i] = c.Index(at, length)
	}
	return rows
}

// stored returns past with the new rows inserted.
func (a *attention) stored(past, now *tensor.Tensor, total int64) *tensor.Tensor {
	s := now.Shape
	rows := int(total)
	if past != nil {
		if past.Rank() != 4 || past.Shape[0] != s[0] || past.Shape[1] != s[1] || past.Shape[3] != s[3] {
			tensor.Fail("a past of %s does not fit %s", past, now)
		}
		rows = max(rows, past.Shape[2])
	}
	y := tensor.ZeroFloats(now.DataType, []int{s[0], s[1], rows, s[3]})
	for h := range s[0] * s[1] {
		first := int(a.first[h/s[1]])
		to := y.F[h*rows*s[3] : (h+1)*rows*s[3]]
		if first > 0 {
			if past == nil || past.Shape[2] < first {
				tensor.Fail("a past of %s does not hold %d tokens", past, first)
			}
			copy(to[:first*s[3]], past.F[h*past.Shape[2]*s[3]:])
		}
		copy(to[first*s[3]:], now.F[h*s[2]*s[3]:(h+1)*s[2]*s[3]])
	}
	return y
}
