package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// opMultiHeadAttention is onnxruntime's op for queries, keys and values in separate tensors. A query whose keys are all
// hidden by a bias of minus infinity returns NaN, as in onnxruntime.
func opMultiHeadAttention(c *op.Call) []*tensor.Tensor {
	for _, i := range []int{8, 9} {
		if c.Arg(i) != nil {
			tensor.Fail("input %d, of a cache in place, is not supported", i)
		}
	}
	n := int(c.Int("num_heads", 0))
	in := []*tensor.Tensor{c.Floats(0), c.Floats(1), c.Floats(2)}
	if bias := c.Arg(3); bias != nil {
		at := 0
		for i, x := range in {
			in[i], at = addToRows(x, bias, at)
		}
	}
	a := &attention{typ: in[0].DataType, soft: onnx.Double, causal: c.Int("unidirectional", 0) != 0,
		window: [2]int64{-1, -1}, noNumbers: true}
	a.q, a.k, a.v = splitHeads(c, in[0], n), splitHeads(c, in[1], n), splitHeads(c, in[2], n)
	if pk, pv := c.Arg(6), c.Arg(7); pk != nil || pv != nil {
		a.k, a.v, a.past = appendPast(c, pk, a.k), appendPast(c, pv, a.v), pk.Shape[2]
	}
	q, k, v := a.q.Shape, a.k.Shape, a.v.Shape
	if q[0] != k[0] || k[0] != v[0] || q[1] != k[1] || k[1] != v[1] || q[3] != k[3] || k[2] != v[2] {
		tensor.Fail("queries of %v, keys of %v and values of %v do not fit", q, k, v)
	}
	scale := c.Float("scale", 0)
	switch {
	case scale == 0:
		scale = 1 / math.Sqrt(float64(q[3]))
	case scale < 0:
		tensor.Fail("the scale is %g", scale)
	}
	a.scale = math.Sqrt(scale)
	if m := c.Arg(5); m != nil {
		a.mask = attentionMask(c, m, []int{q[0], q[1], q[2], k[2]})
	}
	if m := c.Arg(4); m != nil {
		a.padding(m, c.Float("mask_filter_value", -10000))
	}
	y, qk := a.run(c)
	return []*tensor.Tensor{unheads(y, 3), a.k, a.v, qk}
}

// addToRows adds the part of a vector from at on to the rows of x, and returns its end.
func addToRows(x, bias *tensor.Tensor, at int) (*tensor.Tensor, int) {
	if x.Rank() != 3 || bias.Rank() != 1 || !bias.IsFloat() || at+x.Shape[2] > len(bias.F) {
		tensor.Fail("a bias of %s does not fit %s", bias, x)
	}
	y := tensor.ZeroFloats(x.DataType, x.Shape)
	for i, v := range x.F {
		y.F[i] = v + bias.F[at+i%x.Shape[2]]
	}
	return y, at + x.Shape[2]
}

// padding adds a number to the scores of padding keys. The mask is the [batch] numbers of valid keys, or [batch, keys]
// with zeros for padding.
func (a *attention) padding(m *tensor.Tensor, filter float64) {
	batch, heads, s, l := a.q.Shape[0], a.q.Shape[1], a.q.Shape[2], a.k.Shape[2]
	byLength := slices.Equal(m.Shape, []int{batch})
	if m.IsFloat() || !byLength && !slices.Equal(m.Shape, []int{batch, l}) {
		tensor.Fail("a key_padding_mask of %s is not supported", m)
	}
	mask := tensor.ZeroFloats(a.typ, []int{batch, heads, s, l})
	if a.mask != nil {
		copy(mask.F, a.mask.F)
	}
	for i := range mask.F {
		b, j := i/(heads*s*l), i%l
		if byLength && int64(j) >= m.I[b] || !byLength && m.I[b*l+j] == 0 {
			mask.F[i] += filter
		}
	}
	a.mask = mask
}
