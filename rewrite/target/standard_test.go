package target

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestStandard(t *testing.T) {
	rows, w := []int64{2, 3, 8}, []int64{8}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	rotary := func(interleaved, dim int64, side, layout string, tables []int64, run ...int) site {
		return rotarySite(interleaved, dim, side, layout, heads, tables, headsAt, run, run)
	}
	const whole = "Shape Gather Concat Expand Expand RotaryEmbedding"
	for _, c := range []struct {
		name string
		site site
		ops  string
	}{
		{"norm", normSite("RMSNorm", 0, types(f32, f32), rows, w), "RMSNormalization"},
		{"norm, bfloat16", normSite("RMSNorm", 1, types(bf16, bf16), rows, w), "RMSNormalization"},
		{"norm, wide scale", normSite("RMSNorm", 0, types(bf16, f32), rows, w), "Cast RMSNormalization Cast"},
		{"norm, half scale", normSite("RMSNorm", 1, types(f32, f16), rows, w), "Cast RMSNormalization Cast"},
		{"sum", normSite("AddRMSNorm", 1, types(f16, f16, f16), rows, rows, w), "Add RMSNormalization"},
		{"silu", gluSite("silu", 1, 0, 0, bf16), "Swish Mul"},
		{"silu, clamped", gluSite("silu", 1.702, 1.5, 1, f32), "Min Min Max Add Swish Mul"},
		{"gelu", gluSite("gelu", 1, 0, 0, f16), "Gelu Mul"},
		{"gelu of tanh", gluSite("gelu_tanh", 1, 0, 0, f32), "Gelu Mul"},
		{"bias and gelu", biasSite("gelu", 1, f32), "Add Gelu"},
		{"bias and gelu of tanh", biasSite("gelu_tanh", 1, f16), "Add Gelu"},
		{"bias and sigmoid", biasSite("silu", 1.702, f32), "Add Mul Sigmoid Mul"},
		{"sum and layer norm", layerSite(rows, f32, f32, f32, f32), "Add LayerNormalization"},
		{"rotation", rotary(0, 8, "first", "halves", []int64{-1, 4}, 3, 4), whole},
		{"rotation, one batch",
			rotary(1, 8, "first", "interleaved", []int64{1, 1, -1, 4}, 1, 1, 3, 4), "Squeeze Squeeze " + whole},
		{"rotation, wide tables",
			rotary(0, 8, "first", "halves", []int64{1, -1, 8}, 1, 3, 8).repeating(false),
			"Slice Slice Squeeze Squeeze " + whole},
		{"rotation, tables of each sequence",
			rotary(0, 8, "first", "halves", []int64{-1, 1, -1, 4}, 2, 1, 3, 4), "Squeeze Squeeze RotaryEmbedding"},
		{"rotation of the first channels", rotary(0, 4, "first", "halves", []int64{-1, 2}, 3, 2), whole},
		{"rotation of the last channels",
			rotary(0, 4, "last", "halves", []int64{-1, 2}, 3, 2), "Split " + whole + " Concat"},
		{"rotation of neighbors, written as halves",
			rotary(1, 8, "first", "halves", []int64{-1, 4}, 3, 4), "Reshape Transpose Reshape " + whole},
		{"rotation, static shapes",
			rotarySite(0, 8, "first", "halves", []int64{2, 4, 3, 8}, []int64{3, 4}), "Expand Expand RotaryEmbedding"},
		{"rotation, heads after positions",
			rotarySite(0, 4, "first", "halves", []int64{-1, -1, 4, 8}, []int64{-1, -1, 1, 2},
				[]int{2, 3, 4, 8}, []int{2, 3, 1, 2}, []int{2, 3, 1, 2}),
			"Reshape Squeeze Squeeze RotaryEmbedding Reshape"},
		{"rotation without heads", rotarySite(1, 8, "first", "interleaved", []int64{-1, -1, 8}, []int64{-1, -1, 4},
			[]int{2, 3, 8}, []int{2, 3, 4}, []int{2, 3, 4}), "RotaryEmbedding"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, standard, c.site, c.ops) })
	}
	for _, c := range []struct {
		name, reason string
		site         site
	}{
		{"rotation, wide tables", "RotaryEmbedding: the tables are 8 wide and not known to hold each number twice",
			rotary(0, 8, "first", "halves", []int64{-1, 8})},
		{"rotation of unknown heads", "the number of heads is unknown",
			rotarySite(0, 8, "first", "halves", []int64{-1, -1, -1, 8}, []int64{1, -1, 1, 4})},
		{"rotation, tables of unknown heads", "it takes one row for all heads",
			rotary(0, 8, "first", "halves", []int64{-1, -1, -1, 4})},
	} {
		t.Run("open: "+c.name, func(t *testing.T) { open(t, standard, c.site, c.reason) })
	}
}
