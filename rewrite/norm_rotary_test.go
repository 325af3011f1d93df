package rewrite

import (
	"errors"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// normedHeads is a model of queries and keys. Each head is normalized, moved before the positions and rotated.
func normedHeads(t *testing.T, opset int64, typ onnx.DataType) *onnx.Model {
	b := rewritetest.New(t, opset, typ)
	cos, sin := b.In("cos", "batch", 1, "seq", 8), b.In("sin", "batch", 1, "seq", 8)
	for i, name := range []string{"q", "k"} {
		heads := 3 - i
		n := b.Norm(b.In(name, "batch", "seq", heads, 8), b.Weight(name+"_norm", 8), 1e-6)
		moved := b.Op("Transpose", n, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		b.Out(b.Rope(moved, cos, sin, 8), "batch", heads, "seq", 8)
	}
	return b.Model
}

// checkAttention compares the ops of the model and its outputs.
func checkAttention(t *testing.T, m *onnx.Model, typ onnx.DataType, opset int64, wantOps map[string]int) {
	t.Helper()
	ops := rewritetest.CountOps(m)
	for _, op := range []string{"NormRotary", "RMSNorm", "RotaryEmbedding"} {
		if ops[op] != wantOps[op] {
			t.Errorf("%d %s nodes, want %d", ops[op], op, wantOps[op])
		}
	}
	got := rewritetest.Evaluate(t, m)
	for name, w := range rewritetest.Evaluate(t, normedHeads(t, opset, typ)) {
		d, scale := prove.Distance(w.F, got[name].F)
		if allowed := 16 * prove.Spacing(typ, scale); d > allowed {
			t.Errorf("%s differs by %g, %g allowed", name, d, allowed)
		}
	}
	rewritetest.CheckOrder(t, m)
}

func TestNormRotary(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		for _, opset := range []int64{13, 18, 23} {
			m := normedHeads(t, opset, typ)
			r := apply(t, m)
			for name, n := range map[string]int{"NormRotary": 2, "RMSNorm": 0, "RotaryEmbedding": 0} {
				if p := r.pattern(name); p.Found != n || p.Fused != n || p.Refused != 0 {
					t.Errorf("%s: %+v, want %d of %d", name, p, n, n)
				}
			}
			checkAttention(t, m, typ, opset, map[string]int{"NormRotary": 2})
			if ops := rewritetest.CountOps(m); ops["Transpose"] != 2 || len(m.Graph.Nodes) != 4 {
				t.Errorf("%v is left", ops)
			}
			if again := apply(t, m); again.Changed {
				t.Error("a second run changes the model")
			}
		}
	}
}

// The norm and the rotation stay two ops if one of them was not requested or runs elsewhere, or if the combined op is
// refused.
func TestNormRotaryApart(t *testing.T) {
	broken := errors.New("it does not work")
	only := func(names ...string) Request {
		return Request{KeepPattern: func(name string) bool {
			for _, n := range names {
				if n == name {
					return true
				}
			}
			return false
		}}
	}
	for name, c := range map[string]struct {
		include string
		request Request
		want    map[string]int
		refused int
	}{
		"the rotation alone": {"cpu_fused_rope", Request{}, map[string]int{"RotaryEmbedding": 2}, 0},
		"the norm alone":     {"cpu_fused_rmsnorm", Request{}, map[string]int{"RMSNorm": 2}, 0},
		"both":               {"cpu_fused_rmsnorm,cpu_fused_rope", Request{}, map[string]int{"NormRotary": 2}, 0},
		"on two devices": {"cpu_fused_rmsnorm,cuda_fused_rope",
			Request{Backend: backendOf(t, "+CUDA,CPU")},
			map[string]int{"RMSNorm": 2, "RotaryEmbedding": 2}, 0},
		"on CUDA": {Auto, Request{Backend: backendOf(t, "+CUDA,CPU")},
			map[string]int{"NormRotary": 2}, 0},
		"the definition": {Auto, Request{Backend: backendOf(t, "+REF")},
			map[string]int{"NormRotary": 2}, 0},
		"the pattern of neither": {Auto, only("NormRotary"), map[string]int{"NormRotary": 2}, 0},
		"the patterns of both": {Auto, only("RMSNorm", "RotaryEmbedding"),
			map[string]int{"RMSNorm": 2, "RotaryEmbedding": 2}, 0},
		"the pattern of one": {Auto, only("RotaryEmbedding"), map[string]int{"RotaryEmbedding": 2}, 0},
		"the last node of the norm alone": {Auto,
			Request{KeepNode: func(n *onnx.Node) bool { return n.Is("Mul") }},
			map[string]int{"RMSNorm": 2}, 0},
		"a kernel that does not work": {Auto,
			Request{KernelCheck: func(op string, attrs []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor,
				error) {
				if op == "NormRotary" {
					return nil, broken
				}
				return rewritetest.Kernel(func(_, _ []*reference.Tensor) {})(op, attrs, in)
			}}, map[string]int{"RMSNorm": 2, "RotaryEmbedding": 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := normedHeads(t, 20, onnx.Float)
			c.request.Kernels, c.request.AssumeAvailable = c.include, true
			r, err := Apply(m, c.request)
			if err != nil {
				t.Fatal(err)
			}
			if p := r.pattern("NormRotary"); p.Refused != c.refused || p.Fused != c.want["NormRotary"] ||
				p.Found != p.Fused+p.Refused {
				t.Errorf("%+v", p)
			}
			checkAttention(t, m, onnx.Float, 20, c.want)
		})
	}
}
