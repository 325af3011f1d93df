package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/norms"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// attention is one call of Attention (opset 23 to 25) with its heads unpacked and the cache appended.
type attention struct {
	q, k, v *tensor.Tensor // (batch, heads, sequence, head size); k and v with the past
	mask    *tensor.Tensor // additive or bool, broadcast to (batch, heads, query, key); nil
	past    int            // cached keys before the queries
	valid   []int64        // keys without padding, by batch; nil: all
	first   []int64        // the key at the first query's position, by batch; nil: from past and valid
	causal  bool
	window  [2]int64 // visible keys before and after the query; -1: all
	scale   float64  // square root of the scale, applied to both sides
	softcap float64
	sinks   []float64 // by heads, nil
	mode    int64     // the content of the fourth output
	typ     onnx.DataType
	soft    onnx.DataType // softmax_precision
	// noNumbers: a query that sees no key returns NaN instead of 0.
	noNumbers bool
}

func opAttention(c *op.Call) []*tensor.Tensor {
	rank := c.In[0].Rank()
	a := readAttention(c)
	y, qk := a.run(c)
	return []*tensor.Tensor{unheads(y, rank), a.k, a.v, qk}
}

func readAttention(c *op.Call) *attention {
	a := &attention{typ: c.In[0].DataType, causal: c.Int("is_causal", 0) != 0, softcap: c.Float("softcap", 0),
		mode:   c.Int("qk_matmul_output_mode", 0),
		window: [2]int64{c.Int("left_window_size", -1), c.Int("right_window_size", -1)}}
	a.soft = onnx.DataType(c.Int("softmax_precision", int64(onnx.Double)))
	kv := int(c.Int("kv_num_heads", 0))
	a.q, a.k, a.v = splitHeads(c, c.Floats(0), int(c.Int("q_num_heads", 0))), splitHeads(c, c.Floats(1), kv),
		splitHeads(c, c.Floats(2), kv)
	if pk, pv := c.Arg(4), c.Arg(5); pk != nil || pv != nil {
		a.k, a.v = appendPast(c, pk, a.k), appendPast(c, pv, a.v)
		if pk != nil && pk.Rank() == 4 {
			a.past = pk.Shape[2]
		}
	}
	q, k, v := a.q.Shape, a.k.Shape, a.v.Shape
	if q[0] != k[0] || k[0] != v[0] || q[3] != k[3] || k[2] != v[2] || k[1] != v[1] || k[1] == 0 || q[1]%k[1] != 0 {
		tensor.Fail("queries of %v, keys of %v and values of %v do not fit", q, k, v)
	}
	a.scale = c.RoundOne(a.typ, math.Sqrt(c.Float("scale", 1/math.Sqrt(float64(q[3])))))
	if n, ok := c.Integers(6); ok {
		if len(n) != q[0] {
			tensor.Fail("nonpad_kv_seqlen has %d elements for a batch of %d", len(n), q[0])
		}
		a.valid = n
	}
	if m := c.Arg(3); m != nil {
		a.mask = attentionMask(c, m, []int{q[0], q[1], q[2], k[2]})
	}
	return a
}

func appendPast(c *op.Call, past, now *tensor.Tensor) *tensor.Tensor {
	if past == nil || past.DataType != now.DataType && !c.Exact || past.Rank() != 4 {
		tensor.Fail("past key and value are %s beside %s: both must be given, of the same type and rank 4", past, now)
	}
	return tensor.Concat([]*tensor.Tensor{past, now}, 2)
}

// attentionMask broadcasts the mask. A mask that is too short hides the keys after its end.
func attentionMask(c *op.Call, m *tensor.Tensor, want []int) *tensor.Tensor {
	if m.Rank() == 0 || m.Rank() > 4 || m.Shape[m.Rank()-1] > want[3] || !m.IsFloat() && m.DataType != onnx.Bool {
		tensor.Fail("a mask of %s does not fit %v", m, want)
	}
	if short := m.Shape[m.Rank()-1]; short < want[3] {
		pad := slices.Clone(m.Shape)
		pad[len(pad)-1] = want[3] - short
		hidden := tensor.ScalarF(m.DataType, math.Inf(-1))
		if !m.IsFloat() {
			hidden = tensor.NewInts(onnx.Bool, []int{}, []int64{0})
		}
		m = tensor.Concat([]*tensor.Tensor{m, tensor.ExpandTo(hidden, pad)}, m.Rank()-1)
	}
	if !tensor.BroadcastsTo(m.Shape, want) {
		tensor.Fail("a mask of %s does not broadcast to %v", m, want)
	}
	return tensor.ExpandTo(m, want)
}

// bias is added to the score of query i and key j, -Inf if the key is hidden. at is the index of the pair in the mask.
func (a *attention) bias(b, i, j, at int) float64 {
	offset := int64(a.past)
	if a.valid != nil {
		if int64(j) >= a.valid[b] {
			return math.Inf(-1)
		}
		offset = a.valid[b] - int64(a.q.Shape[2])
	}
	if a.first != nil {
		offset = a.first[b]
	}
	diff := int64(i) + offset - int64(j)
	if a.causal && diff < 0 || a.window[0] >= 0 && diff > a.window[0] || a.window[1] >= 0 && -diff > a.window[1] {
		return math.Inf(-1)
	}
	switch {
	case a.mask == nil:
		return 0
	case a.mask.F != nil:
		return a.mask.F[at]
	case a.mask.I[at] != 0:
		return 0
	}
	return math.Inf(-1)
}

// run computes softmax(softcap(q·kᵀ) + bias)·v for each head, rounding where the standard's function body rounds. qk is
// the stage that mode selects.
func (a *attention) run(c *op.Call) (y, qk *tensor.Tensor) {
	batch, heads, s, d := a.q.Shape[0], a.q.Shape[1], a.q.Shape[2], a.q.Shape[3]
	kvHeads, l, dv := a.k.Shape[1], a.k.Shape[2], a.v.Shape[3]
	y, qk = tensor.ZeroFloats(a.typ, []int{batch, heads, s, dv}), tensor.ZeroFloats(a.typ, []int{batch, heads, s, l})
	scaled := func(t *tensor.Tensor) []float64 {
		return tensor.MapSlice(t.F, func(x float64) float64 { return c.RoundOne(a.typ, x*a.scale) })
	}
	q, k, mul := scaled(a.q), scaled(a.k), c.Gemm(a.typ)
	score, row := make([]float64, s*l), make([]float64, l)
	for h := range batch * heads {
		b := h / heads
		kv := b*kvHeads + h%heads/(heads/kvHeads)
		tensor.Gemm(mul, false, true, s, l, d, q[h*s*d:(h+1)*s*d], k[kv*l*d:(kv+1)*l*d], score)
		c.Round(a.typ, score)
		stage := qk.F[h*s*l : (h+1)*s*l]
		for i := range s {
			line := score[i*l : (i+1)*l]
			a.attend(c, b, h, i, line, row, stage[i*l:(i+1)*l])
		}
		tensor.Gemm(mul, false, false, s, dv, l, score, a.v.F[kv*l*dv:(kv+1)*l*dv], y.F[h*s*dv:(h+1)*s*dv])
	}
	return y, qk
}

// attend turns a row of scores into probabilities, and copies the requested stage.
func (a *attention) attend(c *op.Call, b, h, i int, line, bias, stage []float64) {
	l := len(line)
	keep := func(mode int64) {
		if a.mode == mode {
			copy(stage, line)
		}
	}
	keep(0)
	if a.softcap > 0 {
		for j, x := range line {
			t := c.RoundOne(a.typ, math.Tanh(c.RoundOne(a.typ, x/a.softcap)))
			line[j] = c.RoundOne(a.typ, t*a.softcap)
		}
	}
	keep(1)
	hidden := true
	for j := range line {
		bias[j] = a.bias(b, i, j, (h*a.q.Shape[2]+i)*l+j)
		hidden = hidden && math.IsInf(bias[j], -1)
		line[j] = c.RoundOne(a.typ, line[j]+bias[j])
	}
	keep(2)
	if hidden && !a.noNumbers { // no visible key: zeros instead of NaN
		clear(line)
	} else {
		c.Round(a.soft, line)
		if a.sinks != nil {
			with := append(slices.Clone(line), a.sinks[h%a.q.Shape[1]])
			norms.SoftmaxLine(with, c.Adder(a.typ, elementwise.Add[float64]))
			copy(line, with)
		} else {
			norms.SoftmaxLine(line, c.Adder(a.typ, elementwise.Add[float64]))
		}
		c.Round(a.soft, line)
		c.Round(a.typ, line)
	}
	keep(3)
}
