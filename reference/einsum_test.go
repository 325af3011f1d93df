package reference

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// TestEinsumPair compares products of matrices with the sum over all dimensions, which a third operand, the number 1,
// leads to.
func TestEinsumPair(t *testing.T) {
	sizes := map[rune]int{'b': 2, 'c': 3, 'h': 4, 'l': 5, 'n': 70, 's': 5, 'z': 0}
	r := rand.New(rand.NewPCG(1, 2))
	operand := func(term string) *Tensor {
		var shape []int
		for _, l := range term {
			shape = append(shape, sizes[l])
		}
		list := make([]float64, tensor.Size(shape))
		for i := range list {
			list[i] = r.NormFloat64()
		}
		return NewFloats(onnx.Float, shape, list)
	}
	for _, c := range [][3]string{{"bclhn", "bcshn", "bclsh"}, {"bclsh", "bcshn", "bclhn"}, {"bn", "hn", "hb"},
		{"bnc", "cn", "b"}, {"nb", "nh", "bh"}, {"b", "h", "bh"}, {"b", "b", ""}, {"bb", "bh", "h"}, {"bn", "h", "bh"},
		{"bz", "zh", "bh"}, {"lh", "sh", "sl"}} {
		a, b := operand(c[0]), operand(c[1])
		run := func(terms string, in ...*Tensor) *Tensor {
			equation := onnx.StringAttr("equation", terms+"->"+c[2])
			n := &onnx.Node{OpType: "Einsum", Attributes: []*onnx.Attribute{equation}}
			out, err := evalTable(NewForOpset(18, nil, Options{Exact: true}), n, "Einsum", in)
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			return out[0]
		}
		got := run(c[0]+","+c[1], a, b)
		want := run(c[0]+","+c[1]+",", a, b, NewFloats(onnx.Float, nil, []float64{1}))
		if !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.F, want.F) {
			t.Errorf("%v: %v is not %v", c, got, want)
		}
	}
}
