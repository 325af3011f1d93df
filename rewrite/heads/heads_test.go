package heads_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestHeadsInPlace: no transposition is left before a rotation that only attention reads, whichever op rotates the
// heads; those with other readers stay.
func TestHeadsInPlace(t *testing.T) {
	for name, more := range map[string]bool{"llama-kv-dynamo-fp32": false, "qwen3-dynamo-fp32": false,
		"gptoss-batched_mm-dynamo-fp32": false, "llama-dynamo-fp32": true} {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, name)
			want := rewritetest.RunPadded(t, m)
			if more { // the keys rotated by the first block are also an output
				plan := applytest.Plan(t, rewritetest.ReadModel(t, name))
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
			applytest.Apply(t, m)
			for _, n := range m.Graph.Nodes {
				if n.Domain != fused.Domain || n.OpType != "RotaryEmbedding" && n.OpType != "NormRotary" {
					continue
				}
				if by := n.Input(0).Producer; by.Is("Transpose") != more {
					t.Errorf("node %q rotates what %q (%s) gives", n.Name, by.Name, by.OpType)
				}
			}
			got := rewritetest.RunPadded(t, m)
			for name, w := range want {
				if d, scale := prove.Distance(w.F, got[name].F); d > 64*prove.Spacing(w.DataType, scale) {
					t.Errorf("%s differs by %g", name, d)
				}
			}
		})
	}
}

// TestHeadsOfConstantTables: constant tables, as in exports of one length, have no producer.
func TestHeadsOfConstantTables(t *testing.T) {
	build := func() *onnx.Model {
		b := rewritetest.New(t, 18, onnx.Float)
		perm := func(v *onnx.Value, p ...int64) *onnx.Value { return b.Op("Transpose", v, onnx.IntsAttr("perm", p)) }
		cos, sin := b.Weight("cos", 7, 8), b.Weight("sin", 7, 8)
		q, k, v := perm(b.In("q", "batch", 7, 2, 8), 0, 2, 1, 3), perm(b.In("k", "batch", 7, 2, 8), 0, 2, 1, 3),
			perm(b.In("v", "batch", 7, 2, 8), 0, 2, 1, 3)
		scores := b.Op("MatMul", b.Rope(q, cos, sin, 8), perm(b.Rope(k, cos, sin, 8), 0, 1, 3, 2))
		weights := b.Op("Softmax", b.Op("Mul", scores, b.Scalar(onnx.Float, 0.3535)), onnx.IntAttr("axis", -1))
		b.Out(b.Op("MatMul", weights, v), "batch", 2, 7, 8)
		return b.Model
	}
	m := build()
	applytest.Apply(t, m)
	if ops := rewritetest.CountOps(m); ops["Attention"] != 1 || ops["RotaryEmbedding"] != 2 || ops["Transpose"] != 0 {
		t.Errorf("%v is left", ops)
	}
	got := rewritetest.Evaluate(t, m)
	for name, w := range rewritetest.Evaluate(t, build()) {
		if d, scale := prove.Distance(w.F, got[name].F); d > 16*prove.Spacing(onnx.Float, scale) {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}
