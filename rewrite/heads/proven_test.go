package heads

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestHeadsAreProven: the transposition stays before a rotation whose table is moved to the wrong axis, and its change
// is undone.
func TestHeadsAreProven(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		m, n := rotated(t)
		h := newMover(&pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m)}, new(prove.Prover), m.Graph)
		if wrong {
			h.tables[n.Input(1)] = n.Input(1) // unchanged, although the rows moved
		}
		before := m.Graph.Text()
		if err := h.move(n); err != nil {
			t.Fatal(err)
		}
		if p := n.Input(0).Producer; (p != nil && p.Is("Transpose") && m.Graph.Text() == before) != wrong ||
			(len(h.unproven) > 0) != wrong {
			t.Errorf("wrong table %v, unproven %q:\n%s", wrong, h.unproven, m.Graph.Text())
		}
	}
}

// rotated returns a model with transposed and rotated queries of attention, and its rotation.
func rotated(t *testing.T) (*onnx.Model, *onnx.Node) {
	t.Helper()
	b := rewritetest.New(t, 20, onnx.Float)
	b.Model.ImportOpset(fused.Domain, fused.Version)
	x := b.In("x", "batch", "tokens", 2, 8)
	tables := []*onnx.Value{b.In("cos", "batch", 1, "tokens", 8), b.In("sin", "batch", 1, "tokens", 8)}
	k, v := b.In("k", "batch", 2, "tokens", 8), b.In("v", "batch", 2, "tokens", 8)
	q := b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	call := func(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
		n := b.Graph.AddNode(op, inputs, []*onnx.Value{b.Graph.NewValue(op)}, attrs...)
		n.Domain = fused.Domain
		f, err := fused.Lookup(op).Function(pass.FusedSite(b.Model, infer.Analyze(b.Model), n))
		if err != nil {
			t.Fatal(err)
		}
		n.Overload = f.Overload
		b.Model.Functions = append(b.Model.Functions, f)
		return n
	}
	rotation := call("RotaryEmbedding", append([]*onnx.Value{q}, tables...), fused.RotaryEmbedding{RotaryDim: 8,
		RotatedSide: "first", OutputLayout: "halves"}.Attributes()...)
	attends := call(fused.AttentionName, []*onnx.Value{rotation.Outputs[0], k, v}, fused.Attention{Scale: 0.25,
		Empty: "mean", HeadOrder: "blocked", QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh",
		YLayout: "bnsh"}.Attributes()...)
	b.Output(attends.Outputs[0])
	return b.Model, rotation
}
