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

// codedPools are the pools of one sequence with its blocks in order, and the keys and values that were written.
type codedPools struct {
	t      *testing.T
	r      *rand.Rand
	codes  onnx.DataType
	opset  int64
	pools  []*reference.Tensor // key_cache, value_cache, key_scale, value_scale
	floats [2][]float64        // rows of keys and values, by position
}

const codedBlock, codedBlocks, codedHeads, codedWidth = 4, 3, 2, 6

func newCodedPools(t *testing.T, codes onnx.DataType, opset int64) *codedPools {
	p := &codedPools{t: t, r: rand.New(rand.NewPCG(3, 4)), codes: codes, opset: opset}
	shape := []int{codedBlocks, codedBlock, codedHeads, codedWidth}
	for range 2 {
		n := codedBlocks * codedBlock * codedHeads * codedWidth
		if codes == onnx.Int8 {
			p.pools = append(p.pools, reference.NewInts(codes, shape, slices.Repeat([]int64{77}, n)))
		} else {
			p.pools = append(p.pools, reference.NewFloats(codes, shape, slices.Repeat([]float64{math.NaN()}, n)))
		}
	}
	for range 2 { // junk, as memory that nothing wrote
		p.pools = append(p.pools, reference.NewFloats(op.F32, []int{codedBlocks, codedHeads},
			slices.Repeat([]float64{math.NaN()}, codedBlocks*codedHeads)))
	}
	for i := range p.floats {
		p.floats[i] = make([]float64, codedBlocks*codedBlock*codedHeads*codedWidth)
	}
	return p
}

// step writes added tokens of these numbers from a position on, and returns Y, and Y of PagedAttention with the numbers
// of the codes.
func (p *codedPools) step(past, added int64, number func() float64) (y, want *reference.Tensor) {
	p.t.Helper()
	rowsOf := func(heads int64) []int64 { return []int64{added, heads, codedWidth} }
	dims := [][]int64{rowsOf(2 * codedHeads), rowsOf(codedHeads), rowsOf(codedHeads),
		{codedBlocks, codedBlock, codedHeads, codedWidth}, {codedBlocks, codedBlock, codedHeads, codedWidth}, {2}, {1},
		{1, codedBlocks}, {codedBlocks, codedHeads}, {codedBlocks, codedHeads}}
	types := []onnx.DataType{op.F32, op.F32, op.F32, p.codes, p.codes, onnx.Int32, onnx.Int32, onnx.Int32, op.F32,
		op.F32}
	attrs := PagedAttention{Scale: 0.4, Causal: true, HeadOrder: headBlocked}
	s := op.Site{Types: types, Dims: dims, Opset: p.opset,
		Attributes: QPagedAttention{PagedAttention: attrs}.Attributes()}
	in := optest.RandomInputs(p.r, op.Site{Types: types[:QPagedAttentionKeyCache], Dims: dims})
	for k, x := range in[QPagedAttentionK:] {
		for i := range x.F {
			x.F[i] = float64(float32(number()))
		}
		copy(p.floats[k][past*codedHeads*codedWidth:], x.F)
	}
	numbers := func(list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int32, []int{len(list)}, list) }
	table := reference.NewInts(onnx.Int32, []int{1, codedBlocks}, []int64{2, 0, 1})
	all := append(in, p.pools[0], p.pools[1], numbers(0, added), numbers(past), table, p.pools[2], p.pools[3])
	out := p.evaluate(quantizedPagedAttention, s, all)
	p.pools = out[1:]
	decoded := []*reference.Tensor{p.decoded(0), p.decoded(1)}
	s.Types, s.Dims = slices.Clone(types[:QPagedAttentionKeyScale]), dims[:QPagedAttentionKeyScale]
	s.Types[QPagedAttentionKeyCache], s.Types[QPagedAttentionValueCache] = op.F32, op.F32
	s.Attributes = attrs.Attributes()
	// The rows of the codes instead of the new ones.
	rows := func(k int) *reference.Tensor {
		var list []float64
		for j := past; j < past+added; j++ {
			at := p.row(j)
			list = append(list, decoded[k].F[at:at+codedHeads*codedWidth]...)
		}
		return reference.NewFloats(op.F32, []int{int(added), codedHeads, codedWidth}, list)
	}
	other := []*reference.Tensor{in[0], rows(0), rows(1), decoded[0], decoded[1], numbers(0, added), numbers(past),
		table}
	return out[0], p.evaluate(pagedAttention, s, other)[0]
}

// evaluate rounds codes: Exact does not round to float8e4m3fn.
func (p *codedPools) evaluate(o *op.Op, s op.Site, in []*reference.Tensor) []*reference.Tensor {
	p.t.Helper()
	f, err := o.Function(s)
	if err != nil {
		p.t.Fatal(err)
	}
	m := onnx.New(10, s.Opset)
	var inputs, outputs []*onnx.Value
	for i := range in {
		inputs = append(inputs, m.Graph.NewValue(o.Inputs[i].Name))
	}
	for _, x := range o.Outputs {
		outputs = append(outputs, m.Graph.NewValue(x.Name))
	}
	n := m.Graph.AddNode(o.Name, inputs, outputs, s.Attributes...)
	n.Domain, n.Overload = op.Domain, f.Overload
	out, err := reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{}).Op(n, in)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// row is the first element of a position in the pool.
func (p *codedPools) row(j int64) int64 {
	return ([]int64{2, 0, 1}[j/codedBlock]*codedBlock + j%codedBlock) * codedHeads * codedWidth
}

// scale is the scale of a position's element.
func (p *codedPools) scale(k int, at int64) float64 {
	return p.pools[2+k].F[at/(codedBlock*codedHeads*codedWidth)*codedHeads+at/codedWidth%codedHeads]
}

func (p *codedPools) decoded(k int) *reference.Tensor {
	list := slices.Clone(p.pools[k].Floats())
	for i := range list {
		list[i] *= p.scale(k, int64(i))
	}
	return reference.NewFloats(op.F32, p.pools[k].Shape, list)
}

// check compares the codes of the first positions with what was written, within the bounds of the formula. settled
// positions were written when their block had its final scale.
func (p *codedPools) check(length int64, settled func(j int64) bool) {
	p.t.Helper()
	for k := range 2 {
		codes := p.decoded(k)
		for j := range length {
			for i := range int64(codedHeads * codedWidth) {
				at := p.row(j) + i
				want, s := p.floats[k][j*codedHeads*codedWidth+i], p.scale(k, at)
				bound := map[bool]float64{true: s / 2, false: s}[settled(j)]
				if p.codes == onnx.Float8E4M3FN {
					bound = math.Abs(want)/16 + map[bool]float64{true: s / 1024, false: s / 512}[settled(j)]
				}
				if e, _ := math.Frexp(s); e != 0.5 {
					p.t.Fatalf("scale %g is not a power of two", s)
				}
				if d := math.Abs(codes.F[at] - want); !(d <= bound) {
					p.t.Fatalf("%s: element %d of position %d is %g, its code %g, with scale %g", p.codes, i, j, want,
						codes.F[at], s)
				}
			}
		}
	}
}

// TestQuantizedPools writes a sequence in steps: scales grow when a later row is greater, codes stay within their
// bounds, and a rewind writes over rows and blocks.
func TestQuantizedPools(t *testing.T) {
	for _, codes := range []onnx.DataType{onnx.Int8, onnx.Float8E4M3FN} {
		opset := map[onnx.DataType]int64{onnx.Int8: 13, onnx.Float8E4M3FN: 19}[codes]
		p := newCodedPools(t, codes, opset)
		never, always := func(int64) bool { return false }, func(int64) bool { return true }
		compare := func(past, added int64, deviation float64) {
			t.Helper()
			number := func() float64 { return deviation * p.r.NormFloat64() }
			y, want := p.step(past, added, number)
			for i, x := range want.F {
				if d := math.Abs(x - y.F[i]); !(d <= 1e-5*(1+math.Abs(x))) {
					t.Fatalf("%s: element %d of Y is %g, that of PagedAttention with the same keys %g", codes, i,
						y.F[i], x)
				}
			}
		}
		compare(0, 5, 1)
		p.check(5, always)
		before := p.scale(0, p.row(4))
		compare(5, 1, 100) // the second block grows
		if grown := p.scale(0, p.row(4)); grown < 16*before {
			t.Errorf("%s: the scale of the block is %g after a greater key, %g before", codes, grown, before)
		}
		p.check(6, func(j int64) bool { return j != 4 })
		compare(6, 3, 0.01) // smaller rows keep the scale, and the third block starts
		p.check(9, func(j int64) bool { return j != 4 })
		if small := p.scale(0, p.row(8)); small > before {
			t.Errorf("%s: the scale of the third block is %g", codes, small)
		}
		compare(5, 2, 1) // a rewind within the block keeps its scale
		p.check(7, never)
		compare(4, 4, 1) // from its start: it starts over
		p.check(8, always)
		if again := p.scale(0, p.row(4)); again > 4*before {
			t.Errorf("%s: the scale of the block is %g after it started over", codes, again)
		}
		p.step(8, 1, func() float64 { return 0 })
		if s := p.scale(1, p.row(8)); s != 0x1p-126 {
			t.Errorf("%s: the scale of a row of zeros is %g", codes, s)
		}
		p.step(8, 1, func() float64 { return math.Inf(1) })
		if s := p.scale(1, p.row(8)); !math.IsNaN(s) {
			t.Errorf("%s: the scale of an infinity is %g", codes, s)
		}
		compare(8, 1, 1)
		p.check(9, always)
	}
}

// TestLeastScale compares the scales of magnitudes at and beside the greatest codes with their definition.
func TestLeastScale(t *testing.T) {
	for codes, most := range PoolMost {
		p := newCodedPools(t, codes, 19)
		for _, exponent := range []int{-126, -125, -30, -1, 0, 7, 100, 117} {
			for _, of := range []float32{1, 126, 127, 128, 224, 447, 448, 449} {
				x := of * float32(math.Ldexp(1, exponent))
				for _, x := range []float32{math.Nextafter32(x, 0), x, math.Nextafter32(x, math.MaxFloat32)} {
					p.step(0, 1, func() float64 { return float64(x) })
					want := 0x1p-126
					for float64(x) > most*want {
						want *= 2
					}
					if got := p.scale(0, p.row(0)); got != want {
						t.Errorf("%s: the scale of %g is %g, want %g", codes, x, got, want)
					}
				}
			}
		}
	}
}
