package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// pagedCase is a step of several sequences over a pool, as inputs of PagedAttention.
type pagedCase struct {
	site op.Site
	in   []*reference.Tensor
}

// newPagedCase returns a step of sequences with these past and new tokens, in blocks in any order. Unused rows of the
// pool hold NaN.
func newPagedCase(r *rand.Rand, past, added []int64, attrs PagedAttention) pagedCase {
	const block, most, heads, keyHeads, width = 4, 3, 4, 2, 6
	sequences := int64(len(past))
	blocks := most*sequences + 1
	cum, table := []int64{0}, []int64{}
	for _, n := range added {
		cum = append(cum, cum[len(cum)-1]+n)
	}
	for _, b := range r.Perm(int(blocks))[:most*sequences] {
		table = append(table, int64(b))
	}
	tokens := cum[sequences]
	dims := [][]int64{{tokens, heads, width}, {tokens, keyHeads, width}, {tokens, keyHeads, width},
		{blocks, block, keyHeads, width}, {blocks, block, keyHeads, width}, {sequences + 1}, {sequences},
		{sequences, most}}
	c := pagedCase{site: op.Site{Attributes: attrs.Attributes(), Opset: 18, Dims: dims}}
	for i := range dims {
		typ := op.F32
		if i >= PagedAttentionCumulativeSequenceLength {
			typ = onnx.Int32
		}
		c.site.Types = append(c.site.Types, typ)
	}
	c.in = optest.RandomInputs(r, op.Site{Types: c.site.Types[:PagedAttentionCumulativeSequenceLength], Dims: dims})
	numbers := func(list []int64, shape ...int) {
		c.in = append(c.in, reference.NewInts(onnx.Int32, shape, list))
	}
	numbers(cum, len(cum))
	numbers(past, len(past))
	numbers(table, len(past), most)
	const row = keyHeads * width
	for _, pool := range c.in[PagedAttentionKeyCache : PagedAttentionValueCache+1] {
		full := slices.Clone(pool.F)
		for i := range pool.F {
			pool.F[i] = math.NaN()
		}
		for s, n := range past {
			for j := range n {
				at := (table[int64(s)*most+j/block]*block + j%block) * row
				copy(pool.F[at:at+row], full[at:at+row])
			}
		}
	}
	return c
}

// alone returns the case of one of the sequences.
func (c pagedCase) alone(s int) pagedCase {
	cum, past := c.in[PagedAttentionCumulativeSequenceLength].I, c.in[PagedAttentionPastSeqlens].I
	n := cum[s+1] - cum[s]
	in := slices.Clone(c.in)
	for i, x := range in[:PagedAttentionKeyCache] {
		row := int64(x.Shape[1] * x.Shape[2])
		in[i] = reference.NewFloats(x.DataType, []int{int(n), x.Shape[1], x.Shape[2]}, x.F[cum[s]*row:cum[s+1]*row])
	}
	most := c.in[PagedAttentionBlockTable].Shape[1]
	in[PagedAttentionCumulativeSequenceLength] = reference.NewInts(onnx.Int32, []int{2}, []int64{0, n})
	in[PagedAttentionPastSeqlens] = reference.NewInts(onnx.Int32, []int{1}, past[s:s+1])
	used := int(past[s]+n+3) / 4 // a table without room for more: it must not matter
	in[PagedAttentionBlockTable] = reference.NewInts(onnx.Int32, []int{1, used},
		c.in[PagedAttentionBlockTable].I[s*most:s*most+used])
	dims := make([][]int64, len(in))
	for i, x := range in {
		dims[i] = x.Dims()
	}
	return pagedCase{op.Site{Attributes: c.site.Attributes, Types: c.site.Types, Dims: dims, Opset: c.site.Opset}, in}
}

// TestPagedAttentionAlone: a sequence gets the same bits whatever other sequences are in the batch, and whatever is in
// the blocks that it does not use.
func TestPagedAttentionAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	for _, attrs := range []PagedAttention{
		{Scale: 0.4, Causal: true, HeadOrder: headBlocked},
		{Scale: 0.4, Causal: true, Window: 3, Softcap: 2, HeadOrder: headCyclic},
		{Scale: 0.4, HeadOrder: headBlocked},
	} {
		c := newPagedCase(r, []int64{5, 0, 7, 3}, []int64{1, 6, 5, 0}, attrs)
		all, err := optest.Evaluate(pagedAttention, c.site, c.in)
		if err != nil {
			t.Fatal(err)
		}
		cum, row := c.in[PagedAttentionCumulativeSequenceLength].I, int64(4*6)
		for s := range 3 {
			one := c.alone(s)
			got, err := optest.Evaluate(pagedAttention, one.site, one.in)
			if err != nil {
				t.Fatal(err)
			}
			if want := all[0].F[cum[s]*row : cum[s+1]*row]; !slices.Equal(got[0].F, want) {
				t.Errorf("%+v: sequence %d alone gets %v, in the batch %v", attrs, s, got[0].F[:6], want[:6])
			}
		}
	}
}

// TestPagedAttentionIsAttention compares sequences with Attention on their keys in one piece.
func TestPagedAttentionIsAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 9))
	for _, attrs := range []PagedAttention{{Scale: 0.4, Causal: true, HeadOrder: headBlocked},
		{Scale: 0.4, Causal: true, Window: 2, Softcap: 2, HeadOrder: headCyclic}} {
		c := newPagedCase(r, []int64{9}, []int64{3}, attrs)
		got, err := optest.Evaluate(pagedAttention, c.site, c.in)
		if err != nil {
			t.Fatal(err)
		}
		table, in := c.in[PagedAttentionBlockTable].I, make([]*reference.Tensor, AttentionPastValue+1)
		for i := range PagedAttentionKeyCache {
			x := c.in[i]
			in[i] = reference.NewFloats(op.F32, append([]int{1}, x.Shape...), x.F)
		}
		for k, pool := range c.in[PagedAttentionKeyCache : PagedAttentionValueCache+1] {
			past := reference.NewFloats(op.F32, []int{1, 2, 9, 6}, make([]float64, 2*9*6))
			for h := range 2 {
				for j := range 9 {
					at := ((int(table[j/4])*4+j%4)*2 + h) * 6
					copy(past.F[(h*9+j)*6:(h*9+j+1)*6], pool.F[at:at+6])
				}
			}
			in[AttentionPastKey+k] = past
		}
		s := op.Site{Opset: 18, Types: make([]onnx.DataType, len(in)), Dims: make([][]int64, len(in)),
			Attributes: Attention{Scale: attrs.Scale, Causal: true, Window: attrs.Window, Softcap: attrs.Softcap,
				Empty: emptyZero, HeadOrder: attrs.HeadOrder, QLayout: layoutBSNH, KLayout: layoutBSNH,
				VLayout: layoutBSNH, YLayout: layoutBSNH}.Attributes()}
		for i, x := range in {
			if x != nil {
				s.Types[i], s.Dims[i] = x.DataType, x.Dims()
			}
		}
		want, err := optest.Evaluate(Op, s, in)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range want[0].F {
			if y := got[0].F[i]; math.Abs(x-y) > 1e-12 {
				t.Fatalf("%+v: element %d is %g, Attention's is %g", attrs, i, y, x)
			}
		}
	}
}

// TestPagedAttentionSlots: -1 writes no key, and a key is written to its slot.
func TestPagedAttentionSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	c := newPagedCase(r, []int64{0}, []int64{3}, PagedAttention{Scale: 1, HeadOrder: headBlocked})
	c.site.Types = append(c.site.Types, onnx.Int32)
	c.site.Dims = append(c.site.Dims, []int64{3})
	table := c.in[PagedAttentionBlockTable].I
	for i := range c.in[PagedAttentionKeyCache].F {
		c.in[PagedAttentionKeyCache].F[i], c.in[PagedAttentionValueCache].F[i] = 0, 0
	}
	c.in = append(c.in, reference.NewInts(onnx.Int32, []int{3}, []int64{4 * table[0], -1, 4*table[0] + 2}))
	got, err := optest.Evaluate(pagedAttention, c.site, c.in)
	if err != nil {
		t.Fatal(err)
	}
	const row = 2 * 6
	for i, pool := range got[1:] {
		at, rows := int(4*table[0])*row, c.in[PagedAttentionK+i].F
		want := slices.Concat(rows[:row], make([]float64, row), rows[2*row:], make([]float64, row))
		if !slices.Equal(pool.F[at:at+4*row], want) {
			t.Errorf("the block of %s is %v, want %v", pagedAttention.Outputs[1+i].Name, pool.F[at:at+4*row], want)
		}
	}
}
