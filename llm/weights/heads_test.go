package weights_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestHeads covers head counts that fit the rows of queries and keys, and counts that do not, with which rows would be
// restored in the wrong order.
func TestHeads(t *testing.T) {
	const query, key, k = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight", 4
	for name, c := range map[string]struct {
		metadata map[string]any
		keys     int64 // rows of the keys; queries have 16
		why      string
	}{
		"as many": {map[string]any{"llama.attention.head_count": 4}, 16, ""},
		"fewer":   {map[string]any{"llama.attention.head_count": 4, "llama.attention.head_count_kv": 2}, 8, ""},
		"fewer, unsaid": {map[string]any{"llama.attention.head_count": 4}, 8,
			"blk.0.attn_k.weight has 8 rows, which is not a multiple of 4 heads of 4 rows " +
				"(llama.attention.head_count)"},
		"too many": {map[string]any{"llama.attention.head_count": 4, "llama.attention.head_count_kv": 4}, 8,
			"blk.0.attn_k.weight has 8 rows"},
		"of a width": {map[string]any{"llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
			"llama.attention.key_length": 4}, 8, ""},
		"of another width": {map[string]any{"llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
			"llama.attention.key_length": 8}, 8,
			"blk.0.attn_q.weight has 16 rows, which is not a multiple of 4 heads of 8 rows " +
				"(llama.attention.key_length)"},
		"rotated further": {map[string]any{"llama.attention.head_count": 4, "llama.rope.dimension_count": 8}, 16,
			"blk.0.attn_q.weight has 16 rows, which is not a multiple of 4 heads of 8 rows"},
	} {
		c.metadata["general.architecture"] = "llama"
		path := file(t, "m.gguf", c.metadata, named("blk.0.attn_q.weight", counted(0, 16, k)),
			named("blk.0.attn_k.weight", counted(0, c.keys, k)))
		m := reader(t, query, "MatMul", []int64{k, 16})
		absent := reader(t, key, "MatMul", []int64{k, c.keys})
		for _, g := range []*onnx.Model{m, absent} {
			p, err := weights.Match(g, open(t, path), weights.MatchOptions{})
			why := ""
			if err != nil {
				why = err.Error()
			} else if r := p.Report(); r.Loaded != 1 {
				why = r.Missing[0].Reason
			}
			if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("%s: %q, want %q", name, why, c.why)
			}
		}
	}
}
