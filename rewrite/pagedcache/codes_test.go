package pagedcache

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// coded returns the comparison of two sequences, of 3 tokens in the blocks 2 and 0 and of 1 token in block 1, whose
// blocks have 2 tokens, 2 heads of 2 channels and exact codes. Elements are their place times 2, and scales 1 to 6.
func coded(codes onnx.DataType) *bounds {
	b := &bounds{c: &Change{codes: codes}, attrs: fused.PagedAttention{Scale: 0.5, HeadOrder: "blocked"},
		worst: &Rounding{}, in: make([]*reference.Tensor, fused.PagedAttentionSink+1)}
	for k := range b.floats {
		var numbers, exact []float64
		for i := range 3 * 2 * 2 * 2 {
			scale := float64(i/8*2 + i/2%2 + 1)
			numbers, exact = append(numbers, float64(2*i)), append(exact, float64(2*i)/scale)
		}
		b.floats[k], b.codes[k] = floats([]int{3, 2, 2, 2}, numbers...), floats([]int{3, 2, 2, 2}, exact...)
		b.scales[k] = floats([]int{3, 2}, 1, 2, 3, 4, 5, 6)
	}
	ints := func(shape []int, list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int32, shape, list) }
	b.in[fused.PagedAttentionCumulativeSequenceLength] = ints([]int{4}, 0, 2, 2, 3)
	b.in[fused.PagedAttentionPastSeqlens] = ints([]int{3}, 1, 9, 0)
	b.in[fused.PagedAttentionBlockTable] = ints([]int{3, 2}, 2, 0, -1, -1, 1, -1)
	b.in[fused.PagedAttentionQ] = floats([]int{3, 4, 2}, slices.Repeat([]float64{-0.01}, 24)...)
	return b
}

// TestBoundsOfResults: a result may be as far from its twin as the rounding of keys moves weights, and that of values
// the rows that they weigh.
func TestBoundsOfResults(t *testing.T) {
	for _, c := range []struct {
		codes       onnx.DataType
		order       string
		at          int
		error, most float64
		length      int64
	}{{onnx.Int8, "blocked", 5, 5, 42, 3}, {onnx.Int8, "blocked", 6, 6, 46, 3}, {onnx.Int8, "cyclic", 5, 6, 46, 3},
		{onnx.Int8, "cyclic", 2, 5, 42, 3}, {onnx.Int8, "blocked", 11, 4, 22, 1},
		{onnx.Float8E4M3FN, "cyclic", 10, 18.0/16 + 3.0/512, 18, 1}} {
		bound := math.Expm1(2*0.5*0.02*c.error)*c.most + c.error +
			prove.AllowedULPs(onnx.Float, c.length+2)*prove.Spacing(onnx.Float, c.most)
		for _, part := range []float64{-0.9, 0.9, 1.01, math.NaN()} {
			b := coded(c.codes)
			b.attrs.HeadOrder, b.attrs.Scale = c.order, -0.5
			want, got := floats([]int{3, 4, 3}, make([]float64, 36)...), floats([]int{3, 4, 3}, make([]float64, 36)...)
			got.F[c.at*3+2] = part * bound
			err := b.check(want, got)
			if good := part < 1; (err == nil) != good || good && math.Abs(b.worst.Results-0.9) > 1e-9 {
				t.Errorf("%+v, %g of the bound: %v, %+v", c, part, err, b.worst)
			}
		}
	}
	b := coded(onnx.Int8) // a weight is at most 1
	b.attrs.Scale = 1e6
	want, got := floats([]int{3, 2, 1}, make([]float64, 6)...), floats([]int{3, 2, 1}, 2*42+5.1, 0, 0, 0, 0, 0)
	if err := b.check(want, got); err == nil {
		t.Error("weights move by more than 1")
	}
}
