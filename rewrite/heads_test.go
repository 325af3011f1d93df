package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
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
				if d, scale := prove.Distance(w.F, got[name].F); d > 64*prove.Spacing(w.DataType, scale) {
					t.Errorf("%s differs by %g", name, d)
				}
			}
		})
	}
}

// Constant tables, as of exports of one length, have no node that makes them.
func TestHeadsOfConstantTables(t *testing.T) {
	build := func() *onnx.Model {
		b := newBuilder(t, 18, onnx.Float)
		perm := func(v *onnx.Value, p ...int64) *onnx.Value { return b.Op("Transpose", v, onnx.IntsAttr("perm", p)) }
		cos, sin := b.weight("cos", 7, 8), b.weight("sin", 7, 8)
		q, k, v := perm(b.input("q", "batch", 7, 2, 8), 0, 2, 1, 3), perm(b.input("k", "batch", 7, 2, 8), 0, 2, 1, 3),
			perm(b.input("v", "batch", 7, 2, 8), 0, 2, 1, 3)
		scores := b.Op("MatMul", b.rope(q, cos, sin, 8), perm(b.rope(k, cos, sin, 8), 0, 1, 3, 2))
		weights := b.Op("Softmax", b.Op("Mul", scores, b.scalar(onnx.Float, 0.3535)), onnx.IntAttr("axis", -1))
		b.output(b.Op("MatMul", weights, v), "batch", 2, 7, 8)
		return b.Model
	}
	m := build()
	apply(t, m)
	if ops := countOps(m); ops["Attention"] != 1 || ops["RotaryEmbedding"] != 2 || ops["Transpose"] != 0 {
		t.Errorf("%v is left", ops)
	}
	got := evaluate(t, m)
	for name, w := range evaluate(t, build()) {
		if d, scale := prove.Distance(w.F, got[name].F); d > 16*prove.Spacing(onnx.Float, scale) {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}

// TestHeadsAreProven leaves the transposition before a rotation whose table is moved to the wrong axis, and takes back
// what was done to it.
func TestHeadsAreProven(t *testing.T) {
	plan := planned(t, readModel(t, "llama-kv-dynamo-fp32"))
	a := plan.applier
	if err := a.replace(plan.accepted); err != nil {
		t.Fatal(err)
	}
	h := &headMover{applier: a, graph: a.model.Graph, tables: map[*onnx.Value]*onnx.Value{},
		moved: map[*onnx.Value]bool{}}
	tried := 0
	for _, n := range a.model.Graph.Nodes {
		first, ok := rotations[n.OpType]
		if !ok || n.Domain != fused.Domain {
			continue
		}
		tried++
		h.tables[n.Input(first)] = n.Input(first) // as it was, although the rows moved
		before := a.model.Graph.Text()
		if err := h.move(n); err != nil {
			t.Fatal(err)
		}
		if !n.Input(0).Producer.Is("Transpose") || a.model.Graph.Text() != before {
			t.Errorf("node %q was moved", nodeName(n))
		}
		break
	}
	if tried == 0 || len(a.report.Unproven) != tried {
		t.Errorf("%d tried, reported %q", tried, a.report.Unproven)
	}
}
