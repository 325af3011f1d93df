package target

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var (
	heads   = []int64{-1, 4, -1, 8}
	headsAt = []int{2, 4, 3, 8}
)

func TestORT(t *testing.T) {
	rows, w := []int64{2, 3, 8}, []int64{8}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	rotary := func(interleaved, dim int64, side, layout string, tables []int64, run ...int) site {
		return rotarySite(interleaved, dim, side, layout, heads, tables, headsAt, run, run)
	}
	const (
		norm = "SimplifiedLayerNormalization"
		rope = "com.microsoft.RotaryEmbedding"
	)
	for _, c := range []struct {
		name string
		site site
		ops  string
	}{
		{"norm", normSite("RMSNorm", 0, types(f32, f32), rows, w), norm},
		{"norm, float16", normSite("RMSNorm", 1, types(f16, f16), rows, w), norm},
		{"norm, wide scale", normSite("RMSNorm", 0, types(f16, f32), rows, w), "Cast " + norm + " Cast"},
		{"norm, half scale", normSite("RMSNorm", 1, types(f32, f16), rows, w), "Cast " + norm + " Cast"},
		{"sum", normSite("AddRMSNorm", 0, types(f32, f32, f32), rows, rows, w),
			"com.microsoft.SkipSimplifiedLayerNormalization"},
		{"sum of rank 4", normSite("AddRMSNorm", 0, types(f32, f32, f32), []int64{1, 2, 3, 8}, []int64{1, 2, 3, 8}, w),
			"Add " + norm},
		{"sum, half scale", normSite("AddRMSNorm", 1, types(f32, f32, f16), rows, rows, w),
			"Cast com.microsoft.SkipSimplifiedLayerNormalization Cast"},
		{"sum, wide scale", normSite("AddRMSNorm", 0, types(f16, f16, f32), rows, rows, w),
			"Add Cast " + norm + " Cast"},
		{"silu", gluSite("silu", 1, 0, 0, f32), "com.microsoft.QuickGelu Mul"},
		{"silu, clamped", gluSite("silu", 1.702, 1.5, 1, f16),
			"Cast Min Min Cast Max Cast Add com.microsoft.QuickGelu Mul"},
		{"gelu", gluSite("gelu", 1, 0, 0, f16), "com.microsoft.Gelu Mul"},
		{"gelu of tanh", gluSite("gelu_tanh", 1, 0, 0, f32), "com.microsoft.FastGelu Mul"},
		{"bias and gelu", biasSite("gelu", 1, f32), "com.microsoft.BiasGelu"},
		{"bias and gelu of tanh", biasSite("gelu_tanh", 1, f16), "com.microsoft.FastGelu"},
		{"bias and sigmoid", biasSite("silu", 1.702, f32), "Add com.microsoft.QuickGelu"},
		{"sum and layer norm", layerSite(rows, f32, f32, f32, f32), "com.microsoft.SkipLayerNormalization"},
		{"sum with a bias", layerSite(rows, f16, f16, f16, f16, f16), "com.microsoft.SkipLayerNormalization"},
		{"layer norm of rank 4", layerSite([]int64{1, 2, 3, 8}, f32, f32, f32, f32, f32), "Add Add LayerNormalization"},
		{"rotation", rotary(0, 8, "first", "halves", []int64{-1, 4}, 3, 4), rope},
		{"rotation, one batch",
			rotary(0, 8, "first", "halves", []int64{1, 1, -1, 4}, 1, 1, 3, 4), "Reshape Reshape " + rope},
		{"rotation, wide tables", rotary(0, 8, "first", "halves", []int64{1, 1, -1, 8}, 1, 1, 3, 8).repeating(false),
			"Slice Slice Reshape Reshape " + rope},
		{"rotation of neighbors, wide tables",
			rotary(1, 8, "first", "interleaved", []int64{1, -1, 8}, 1, 3, 8).repeating(true),
			"Slice Slice Reshape Reshape " + rope},
		{"rotation, tables of each sequence", rotary(0, 8, "first", "halves", []int64{-1, 1, -1, 4}, 2, 1, 3, 4),
			"Shape Gather ReduceProd Range Reshape Squeeze Squeeze Reshape Reshape " + rope},
		{"rotation, one row for all positions", rotary(0, 8, "first", "halves", []int64{1, 1, 1, 4}, 1, 1, 1, 4),
			"Shape Gather ReduceProd Range Reshape Squeeze Squeeze Shape Gather Concat Expand Expand Reshape Reshape " +
				rope},
		{"rotation of the first channels", rotary(0, 4, "first", "halves", []int64{-1, 2}, 3, 2), rope},
		{"rotation of the last channels",
			rotary(1, 4, "last", "interleaved", []int64{-1, 2}, 3, 2), "Split " + rope + " Concat"},
		{"rotation of neighbors, written as halves", rotary(1, 8, "first", "halves", []int64{-1, 4}, 3, 4),
			"Reshape Transpose Reshape " + rope},
		{"rotation of halves, written as neighbors", rotary(0, 4, "first", "interleaved", []int64{-1, 2}, 3, 2),
			"Split Reshape Transpose Reshape " + rope + " Concat"},
		{"rotation, heads after positions",
			rotarySite(0, 8, "first", "halves", []int64{-1, -1, 4, 8}, []int64{1, -1, 1, 4},
				[]int{2, 3, 4, 8}, []int{1, 3, 1, 4}, []int{1, 3, 1, 4}), "Reshape Reshape Reshape " + rope +
				" Reshape"},
		{"rotation without heads", rotarySite(1, 8, "first", "interleaved", []int64{-1, -1, 8}, []int64{-1, -1, 4},
			[]int{2, 3, 8}, []int{2, 3, 4}, []int{2, 3, 4}), "Shape Gather ReduceProd Range Reshape Reshape Reshape " +
			rope},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, ort, c.site, c.ops) })
	}
	for _, c := range []struct {
		name, reason string
		site         site
	}{
		{"norm, bfloat16", "takes float32 and float16 on the CPU, not bfloat16",
			normSite("RMSNorm", 0, types(bf16, bf16), rows, w)},
		{"norm, wide scale of bfloat16", "not bfloat16", normSite("RMSNorm", 0, types(bf16, f32), rows, w)},
		{"sum, bfloat16", "not bfloat16", normSite("AddRMSNorm", 0, types(bf16, bf16, bf16), rows, rows, w)},
		{"silu, bfloat16", "target ort: QuickGelu takes float32 and float16 on the CPU, not bfloat16",
			gluSite("silu", 1, 0, 0, bf16)},
		{"rotation, bfloat16", "not bfloat16", rotary(0, 8, "first", "halves", []int64{-1, 4}).typed(bf16, bf16, bf16)},
		{"rotation, wide tables", "the tables are 8 wide and not known to hold each number twice",
			rotary(0, 8, "first", "halves", []int64{-1, 8})},
		{"rotation, tables that repeat otherwise", "not known to hold each number twice",
			rotary(1, 8, "first", "interleaved", []int64{-1, 8}).repeating(false)},
		{"rotation, tables for each head", "it takes one row for all heads",
			rotary(0, 8, "first", "halves", []int64{4, -1, 4})},
		{"router", "only together with its experts", site{op: "TopKRouter", types: types(f32), dims: [][]int64{{6, 5}},
			attrs: fused.TopKRouter{TopK: 2, Score: "softmax", Order: "score_first", Groups: 1, GroupTopK: 1,
				GroupScore: "max", Scale: 1}.Attributes()}},
		{"rotation of rank 2", "X has the shape [?, 8]",
			rotarySite(0, 8, "first", "halves", []int64{-1, 8}, []int64{-1, 4})},
		{"rotation of unknown channels", "the number of channels is unknown",
			rotarySite(0, 8, "first", "halves", []int64{-1, 4, -1, -1}, []int64{-1, 4})},
	} {
		t.Run("open: "+c.name, func(t *testing.T) { open(t, ort, c.site, c.reason) })
	}
}
