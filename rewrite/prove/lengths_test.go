package prove

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestPaddings: 1 marks the keys of three batches that exist, among four, two and one.
func TestPaddings(t *testing.T) {
	for _, want := range []struct {
		name, four, two, one string
		empty, right         bool
	}{
		{"no padding", "1111 1111 1111", "11 11 11", "1 1 1", false, true},
		{"padding on the right", "1110 1100 1000", "10 10 10", "1 1 1", false, true},
		{"padding on the left", "0111 0011 0001", "01 00 01", "0 0 0", true, false},
		{"holes", "1011 1110 1101", "10 11 11", "1 1 1", false, false},
		{"nothing but padding", "0000 1111 1111", "00 11 11", "0 1 1", true, false},
	} {
		p := Paddings[slices.IndexFunc(Paddings, func(p Padding) bool { return p.Name == want.name })]
		if p.Empty != want.empty || p.Right != want.right {
			t.Errorf("%s: a query may have no key: %v, padding follows the keys: %v", p.Name, p.Empty, p.Right)
		}
		for _, text := range []string{want.four, want.two, want.one} {
			keys := int64(len(text)-2) / 3
			ints, floats := p.Tensor(onnx.Bool, []int64{3, keys}), p.Tensor(onnx.Float, []int64{3, keys})
			var got, same string
			for i, x := range ints.I {
				if i > 0 && i%int(keys) == 0 {
					got, same = got+" ", same+" "
				}
				got, same = got+fmt.Sprint(x), same+fmt.Sprint(floats.F[i])
			}
			if got != text || same != text || !slices.Equal(ints.Shape, []int{3, int(keys)}) {
				t.Errorf("%s: %s and, as floats, %s, want %s", p.Name, got, same, text)
			}
		}
	}
}

// TestLengths: inputs of attention have heads and channels of the site, and tokens and sequences of the trial.
func TestLengths(t *testing.T) {
	trial := Lengths{Batch: 2, Past: 3, Added: 4, Padding: NoPadding}
	attention := map[string][]int64{"q": {-1, 9, 6, 8}, "k": {-1, 2, 9, 8}, "v": {-1, 9, 2, 5},
		"past_key": {-1, 2, -1, 8}, "past_value": {-1, 2, -1, 5}}
	const op, latent = fused.AttentionName, fused.LatentAttentionName
	for name, c := range map[string]struct {
		op, layout string
		more       map[string][]int64
		want       string
	}{
		"all": {op, "bsnh", map[string][]int64{"key_valid": {-1, -1}, "sink": {6}}, "q[2 4 6 8] k[2 2 4 8] " +
			"v[2 4 2 5] key_valid[2 7] past_key[2 2 3 8] past_value[2 2 3 5] sink[6]"},
		"one token":        {op, "bnsh", map[string][]int64{"q": {1, 6, 1, 8}}, "q[2 6 4 8] k[2 2 4 8] "},
		"a buffer":         {op, "bsnh", map[string][]int64{"past_length": {1}}, "past_value[2 2 7 5] past_length[1]"},
		"a shared bias":    {op, "bsnh", map[string][]int64{"bias": {1, 6, -1, -1}}, "bias[1 6 4 7]"},
		"a flat bias":      {op, "bsnh", map[string][]int64{"bias": {-1, -1}}, "bias[4 7]"},
		"a new sink":       {op, "bsnh", map[string][]int64{"sink": {}}, "sink[6]"},
		"unknown channels": {op, "bsnh", map[string][]int64{"k": {-1, 2, 9, -1}}, `the shape of "k" is not known`},
		"unknown rank":     {op, "bsnh", map[string][]int64{"q": nil}, `the shape of "q" is not known`},
		"unknown heads":    {op, "bsnh", map[string][]int64{"q": nil, "sink": {}}, `the shape of "q" is not known`},
		"latents": {latent, "bnsh", map[string][]int64{"q": {-1, 6, -1, 8}, "c": {-1, -1, 16}, "k_pe": {-1, 1, -1, 4},
			"w": {12, 16}, "past": {-1, 1, -1, 20}},
			"q[2 6 4 8] c[2 4 16] k_pe[2 1 4 4] w[12 16] past[2 1 3 20]"},
	} {
		is := func(op *fused.CachedOp) bool { return op.Name == c.op }
		op := fused.CachedOps[slices.IndexFunc(fused.CachedOps, is)]
		n, site := &onnx.Node{}, fused.Site{Attributes: []*onnx.Attribute{onnx.StringAttr(fused.AttrQLayout, c.layout),
			onnx.StringAttr(fused.AttrKLayout, "bnsh"), onnx.StringAttr(fused.AttrVLayout, "bsnh")}}
		for _, p := range fused.Lookup(c.op).Inputs {
			dims, ok := c.more[p.Name]
			if !ok && c.op == fused.AttentionName {
				dims, ok = attention[p.Name]
			}
			var v *onnx.Value
			if ok {
				v = &onnx.Value{Name: p.Name}
			}
			n.Inputs, site.Dims = append(n.Inputs, v), append(site.Dims, dims)
			site.Types = append(site.Types, onnx.Float)
		}
		in, err := trial.Inputs(op, n, site, 1)
		var got []string
		for i, x := range in {
			if x != nil {
				got = append(got, op.Input(i)+fmt.Sprint(x.Shape))
			}
		}
		if text := strings.Join(got, " "); err == nil && !strings.Contains(text, c.want) ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v, want %s", name, text, err, c.want)
		}
		if length := n.Input(op.Length); length != nil && in[op.Length].I[0] != 3 {
			t.Errorf("%s: %v tokens in the buffer", name, in[op.Length].I)
		}
	}
}

// TestRows: the rows of each head get to the front of its part of a larger cache.
func TestRows(t *testing.T) {
	small := reference.NewFloats(onnx.Float, []int{2, 2, 2, 1}, []float64{1, 2, 3, 4, 5, 6, 7, 8})
	large := reference.NewFloats(onnx.Float, []int{2, 2, 3, 1}, slices.Repeat([]float64{9}, 12))
	if CopyRows(large, small); !slices.Equal(large.F, []float64{1, 2, 9, 3, 4, 9, 5, 6, 9, 7, 8, 9}) {
		t.Errorf("copied to %v", large.F)
	}
	x := reference.NewFloats(onnx.Float, []int{2, 2, 3, 1}, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	if y := SwapHeads(x); !slices.Equal(y.F, []float64{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}) ||
		!slices.Equal(y.Shape, []int{2, 3, 2, 1}) {
		t.Errorf("%v of shape %v", y.F, y.Shape)
	}
}
