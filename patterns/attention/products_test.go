package attention_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestSharedWeights: each product with the weights of one softmax is attention, unless another node reads them.
func TestSharedWeights(t *testing.T) {
	for _, read := range []bool{false, true} {
		m := build(func(b *block) {
			b.sum = func(b *block, p, v value) value {
				other := repeatEach(b, b.Input("other", onnx.Float, "batch", 2, "queries", 8))
				b.Output(b.Op("MatMul", p, other))
				if read {
					b.Output(b.Op("ReduceMax", p, []int64{-1}))
				}
				return b.Op("MatMul", p, v)
			}
		}, false)
		matches, _ := patterns.Builtin().Find(m.Graph, infer.Analyze(m))
		var values []string
		for _, match := range matches {
			if match.Pattern == "Attention" {
				values = append(values, match.Inputs[2].Name)
			}
		}
		slices.Sort(values)
		if want := map[bool][]string{false: {"other", "v"}}[read]; !slices.Equal(values, want) {
			t.Errorf("found attention of the values %q, want %q", values, want)
		}
	}
}
