package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestQNN(t *testing.T) {
	x, w := []int64{2, 3, 2, 8}, []int64{8}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	norm := normSite("RMSNorm", 0, types(f32, f32), []int64{-1, -1, 8}, w)
	norm.run = [][]int{{2, 3, 8}, {8}}
	for _, c := range []struct {
		name string
		site site
		ops  string
	}{
		{"norm", normSite("RMSNorm", 0, types(f32, f32), []int64{5, 8}, w), "RMSNormalization"},
		{"norm of one batch", normSite("RMSNorm", 1, types(f16, f16), []int64{1, 1, 5, 8}, w), "RMSNormalization"},
		{"norm of a vector", normSite("RMSNorm", 0, types(f32, f32), w, w), "RMSNormalization"},
		{"norm of heads", normSite("RMSNorm", 1, types(f16, f16), x, w), "Reshape RMSNormalization Reshape"},
		{"norm of dimensions unknown", norm, "Reshape RMSNormalization Shape Reshape"},
		{"norm, wide scale", normSite("RMSNorm", 0, types(f16, f32), []int64{5, 8}, w), "Cast RMSNormalization Cast"},
		{"norm, half scale", normSite("RMSNorm", 1, types(f32, f16), x, w),
			"Cast Reshape RMSNormalization Reshape Cast"},
		{"sum", normSite("AddRMSNorm", 0, types(f32, f32, f32), x, x, w), "Add Reshape RMSNormalization Reshape"},
		{"silu", gluSite("silu", 1, 0, 0, f32), "Sigmoid Mul Mul"},
		{"silu, clamped", gluSite("silu", 1.702, 1.5, 1, f32), "Min Min Max Add Mul Sigmoid Mul Mul"},
		{"gelu", gluSite("gelu", 1, 0, 0, f16), "Gelu Mul"},
		{"gelu of tanh", gluSite("gelu_tanh", 1, 0, 0, f32), "Gelu Mul"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, qnn, c.site, c.ops) })
	}
	two := normSite("RMSNorm", 0, types(f32, f32), x, []int64{2, 8})
	two.attrs[0] = onnx.IntAttr("axis", -2)
	open(t, qnn, two, "axis -2")
	open(t, qnn, normSite("RMSNorm", 0, types(bf16, bf16), x, w), "not bfloat16")
	open(t, qnn, normSite("AddRMSNorm", 0, types(bf16, bf16, f32), x, x, w), "not bfloat16")
	open(t, qnn, normSite("RMSNorm", 0, types(f32, f32), []int64{1, 1, 2, 3, 2, 8}, w),
		"up to rank 5, not over axis -1 of X, [1, 1, 2, 3, 2, 8]")
	open(t, qnn, normSite("RMSNorm", 0, types(f32, f32), nil, w), "of unknown rank")
	open(t, qnn, gluSite("silu", 1, 0, 0, bf16), "not bfloat16")
	open(t, qnn, rotarySite(0, 8, "first", "halves", []int64{2, 5, 8}, []int64{5, 4}).typed(bf16, bf16, bf16),
		"not bfloat16")
}

// TestQNNRotary: QNN has one op for every rotation.
func TestQNNRotary(t *testing.T) {
	for _, x := range [][]int64{{2, 3, 5, 8}, {2, 5, 8}} {
		for _, side := range []string{"first", "last"} {
			for _, r := range []int64{8, 4} {
				for _, layout := range []string{"halves", "interleaved"} {
					for interleaved := range int64(2) {
						s := rotarySite(interleaved, r, side, layout, x, []int64{5, r / 2})
						t.Run(fmt.Sprint(x, side, r, layout, interleaved), func(t *testing.T) {
							if ops := written(same(t, qnn, s.typed(f16, f16, f16))); strings.Count(ops,
								"RotaryEmbedding") != 1 {
								t.Errorf("wrote %s", ops)
							}
						})
					}
				}
			}
		}
	}
}

// TestQNNAttention: position masks are constants, and padding masks come from the input.
func TestQNNAttention(t *testing.T) {
	const given = "Identity Unsqueeze Expand Reshape "
	const padding = "Unsqueeze Equal Where "
	for _, c := range []struct {
		name string
		site attend
		ops  string
	}{
		{"no mask", attend{layouts: "hhhh"}, given + given + "Transpose MatMul Mul Softmax MatMul"},
		{"causal", attend{layouts: "hhhh", causal: 1}, given + given + "Transpose MatMul Mul Add Softmax MatMul"},
		{"padding, the mean where there is no key", attend{layouts: "hhhh", valid: true, empty: "mean"},
			padding + given + given + "Transpose MatMul Mul Add Softmax MatMul"},
		{"padding, zeros where there is no key", attend{layouts: "hhhh", causal: 1, window: 2, valid: true},
			padding + "Min ReduceMax Less " + given + given + "Transpose MatMul Mul Add Softmax MatMul Where"},
		{"sinks", attend{layouts: "hhhh", causal: 1, keys: 4, sink: true}, "Concat Unsqueeze Expand Reshape Concat " +
			"Unsqueeze Expand Reshape Transpose MatMul Mul Add Reshape Expand Concat Softmax Slice MatMul"},
		{"a bias", attend{layouts: "hhhh", bias: true},
			"ReduceMax IsInf " + given + given + "Transpose MatMul Mul Add Softmax MatMul Where"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, qnn, c.site.site().fixed(), c.ops) })
	}
	open(t, qnn, attend{layouts: "hhhh", typ: bf16}.site().fixed(), "not bfloat16")
	open(t, qnn, attend{layouts: "hhhh", causal: 1}.site(), "the number of queries and keys is unknown")
	grown := attend{layouts: "hhhh", causal: 1, keys: 5}.site()
	past := grown.dims[fused.AttentionPastKey]
	grown = grown.fixed()
	grown.dims[fused.AttentionPastKey] = past
	open(t, qnn, grown, "the number of queries and keys is unknown")
	for _, a := range []attend{{causal: 1}, {window: 1}, {valid: true}} {
		a.layouts, a.bias = "hhhh", true
		open(t, qnn, a.site().fixed(), "a bias and a mask")
	}
}

// fixed returns the site with the dimensions of the run.
func (s site) fixed() site {
	s.dims = slices.Clone(s.dims)
	for i, dims := range s.run {
		if dims == nil {
			continue
		}
		s.dims[i] = nil
		for _, d := range dims {
			s.dims[i] = append(s.dims[i], int64(d))
		}
	}
	return s
}
