package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestHeadsInPlace has no transposition left before a rotation that attention alone reads, by whichever op heads
// are rotated, and leaves those that something else reads.
func TestHeadsInPlace(t *testing.T) {
	for name, more := range map[string]bool{"llama-kv-dynamo-fp32": false, "qwen3-dynamo-fp32": false,
		"gptoss-batched_mm-dynamo-fp32": false, "llama-hf-fp32": true} {
		t.Run(name, func(t *testing.T) {
			m := readModel(t, name)
			want := runPadded(t, m)
			if more { // the keys that the first block rotates are an output, too
				plan := planned(t, readModel(t, name))
				for _, f := range plan.Found {
					for _, match := range f.Matches {
						if match.Op == "RotaryEmbedding" {
							v := m.Graph.Value(match.Outputs[0].Name)
							v.SetType(onnx.Type{DataType: onnx.Float})
							m.Graph.AddOutput(v)
						}
					}
				}
			}
			apply(t, m)
			for _, n := range m.Graph.Nodes {
				if _, ok := rotations[n.OpType]; !ok || n.Domain != fused.Domain {
					continue
				}
				if by := n.Input(0).Producer; by.Is("Transpose") != more {
					t.Errorf("node %q rotates what %q (%s) gives", n.Name, by.Name, by.OpType)
				}
			}
			got := runPadded(t, m)
			for name, w := range want {
				if d, scale := distance(w.F, got[name].F); d > 64*spacing(w.DataType, scale) {
					t.Errorf("%s differs by %g", name, d)
				}
			}
		})
	}
}
