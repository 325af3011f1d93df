package target

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestSoftmaxOfRouters: MoE takes weights that are a softmax, as it is (0) or divided by the sum of the chosen (1).
func TestSoftmaxOfRouters(t *testing.T) {
	usual := fused.TopKRouter{TopK: 2, Score: "softmax", Order: "score_first", Groups: 1, GroupTopK: 1,
		GroupScore: "max", Scale: 1}
	for want, change := range map[string]func(r *fused.TopKRouter){
		"0":                                  func(*fused.TopKRouter) {},
		"1":                                  func(r *fused.TopKRouter) { r.Renormalize = true },
		"1 ":                                 func(r *fused.TopKRouter) { r.Order = "top_k_first" },
		"0 scores by softmax, not by logits": func(r *fused.TopKRouter) { r.Score = "logits" },
		"0 does not choose among groups":     func(r *fused.TopKRouter) { r.Groups = 2 },
		"0 but the router adds 1e-06":        func(r *fused.TopKRouter) { r.Epsilon = 1e-6 },
	} {
		r := usual
		change(&r)
		b := onnxtest.New(20)
		n := b.Op("mojo:TopKRouter", b.Input("logits", onnx.Float, 2, 4)).Producer
		got, err := NewCall(n, fused.Site{Attributes: r.Attributes()}).softmax()
		number, reason, _ := strings.Cut(want, " ")
		if fmt.Sprint(got) != number || (err != nil) != (reason != "") ||
			err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%d, %v, want %s", got, err, want)
		}
	}
}

// TestActivationsOfMoE: the attributes of onnxruntime's MoE for an activation, or the reason why it has none.
func TestActivationsOfMoE(t *testing.T) {
	gated := func(limit float32) fused.MoE {
		return fused.MoE{GLU: fused.GLU{Activation: "silu", Alpha: 1.5, UpOffset: 1, Limit: limit}, Packing: "halves"}
	}
	plain := func(activation string, alpha, limit float32) fused.MoE {
		return fused.MoE{GLU: fused.GLU{Activation: activation, Alpha: alpha, Limit: limit}, Packing: "none"}
	}
	for _, c := range []struct {
		moe  fused.MoE
		want string
	}{
		{gated(0), "activation_type=swiglu swiglu_fusion=1 activation_alpha=1.5 activation_beta=1"},
		{gated(7), "activation_type=swiglu swiglu_fusion=1 activation_alpha=1.5 activation_beta=1 swiglu_limit=7"},
		{plain("silu", 1, 0), "activation_type=silu"}, {plain("relu", 1.7, 0), "activation_type=relu"},
		{plain("gelu_tanh", 1, 0), "activation_type=gelu"},
		{plain("silu", 1.7, 0), "activation silu (alpha 1.7, limit 0) without a gate"},
		{plain("silu", 1, 2), "activation silu (alpha 1, limit 2) without a gate"},
		{plain("gelu", 1, 0), "activation gelu (alpha 1, limit 0) without a gate"},
	} {
		n := onnxtest.New(20).Op("mojo:MoE").Producer
		attrs, err := NewCall(n, fused.Site{Attributes: c.moe.Attributes()}).ortActivation()
		var got []string
		for _, a := range attrs {
			switch a.Type {
			case onnx.AttrString:
				got = append(got, a.Name+"="+a.String)
			case onnx.AttrInt:
				got = append(got, fmt.Sprint(a.Name, "=", a.Int))
			default:
				got = append(got, fmt.Sprint(a.Name, "=", a.Float))
			}
		}
		if text := strings.Join(got, " "); err == nil && text != c.want ||
			err != nil && (!strings.Contains(err.Error(), c.want) || got != nil) {
			t.Errorf("%+v: %s, %v, want %s", c.moe, text, err, c.want)
		}
	}
}

// TestRoutersOfExperts: the router whose weights and choice experts read, also behind nodes that change neither.
func TestRoutersOfExperts(t *testing.T) {
	last, first := onnx.IntAttr("axis", -1), onnx.IntAttr("axis", 0)
	type choice struct{ weights, ids *onnx.Value }
	for name, c := range map[string]struct {
		change    func(b *onnxtest.Builder, c *choice)
		moe, qmoe bool // which of the two ops takes it
	}{
		"as they are": {func(*onnxtest.Builder, *choice) {}, true, true},
		"cast": {func(b *onnxtest.Builder, c *choice) {
			c.weights = b.Op("Cast", b.Op("Cast", c.weights, onnx.IntAttr("to", 10)), onnx.IntAttr("to", 1))
		}, true, true},
		"in another shape": {func(b *onnxtest.Builder, c *choice) {
			c.weights, c.ids = b.Op("Reshape", c.weights, []int64{-1, 2}), b.Op("Cast", c.ids, onnx.IntAttr("to", 7))
		}, false, true},
		"gathered": {func(b *onnxtest.Builder, c *choice) {
			all := b.Op("Cast", b.Op("ScatterElements", 0.0, c.ids, c.weights, last), onnx.IntAttr("to", 1))
			c.weights = b.Op("GatherElements", all, c.ids, last)
		}, true, false},
		"gathered along the first axis": {func(b *onnxtest.Builder, c *choice) {
			all := b.Op("ScatterElements", 0.0, c.ids, c.weights, last)
			c.weights = b.Op("GatherElements", all, c.ids, first)
		}, false, false},
		"scattered along the first axis": {func(b *onnxtest.Builder, c *choice) {
			all := b.Op("ScatterElements", 0.0, c.ids, c.weights, first)
			c.weights = b.Op("GatherElements", all, c.ids, last)
		}, false, false},
		"gathered by other ids": {func(b *onnxtest.Builder, c *choice) {
			other := b.Input("other", onnx.Int64, 3, 2)
			all := b.Op("ScatterElements", 0.0, c.ids, c.weights, last)
			c.weights = b.Op("GatherElements", all, other, last)
		}, false, false},
		"scattered by other ids": {func(b *onnxtest.Builder, c *choice) {
			other := b.Input("other", onnx.Int64, 3, 2)
			all := b.Op("ScatterElements", 0.0, other, c.weights, last)
			c.weights = b.Op("GatherElements", all, c.ids, last)
		}, false, false},
		"gathered from an input": {func(b *onnxtest.Builder, c *choice) {
			c.weights = b.Op("GatherElements", b.Input("all", onnx.Float, 3, 4), c.ids, last)
		}, false, false},
		"weights of an input": {func(b *onnxtest.Builder, c *choice) {
			c.weights = b.Input("w", onnx.Float, 3, 2)
		}, false, false},
		"weights of other nodes": {func(b *onnxtest.Builder, c *choice) {
			c.weights = b.Op("Neg", c.weights)
		}, false, false},
		"ids of an input": {func(b *onnxtest.Builder, c *choice) {
			c.ids = b.Input("ids", onnx.Int64, 3, 2)
		}, false, false},
		"ids of other nodes": {func(b *onnxtest.Builder, c *choice) { c.ids = b.Op("Neg", c.ids) }, false, false},
		"of another router": {func(b *onnxtest.Builder, c *choice) {
			c.ids = b.Ops(2, "mojo:TopKRouter", b.Input("logits2", onnx.Float, 3, 4))[1]
		}, false, false},
		"ids as weights": {func(_ *onnxtest.Builder, c *choice) { c.weights = c.ids }, false, true},
		"of another op": {func(b *onnxtest.Builder, c *choice) {
			out := b.Ops(2, "mojo:Other", c.weights)
			c.weights, c.ids = out[0], out[1]
		}, false, false},
		"of another domain": {func(b *onnxtest.Builder, c *choice) { c.ids.Producer.Domain = "other" }, false, false},
		"a negative factor": {func(b *onnxtest.Builder, c *choice) {
			c.ids.Producer.SetAttr(onnx.FloatAttr("scale", -1))
		}, true, false},
	} {
		b := onnxtest.New(20)
		out := b.Ops(2, "mojo:TopKRouter", b.Input("logits", onnx.Float, 3, 4))
		router := NewCall(out[0].Producer, fused.Site{})
		chosen := &choice{out[0], out[1]}
		c.change(b, chosen)
		x := b.Input("x", onnx.Float, 3, 8)
		n := b.Op("mojo:MoE", x, chosen.weights, chosen.ids).Producer
		call := NewCall(n, fused.Site{})
		call.Others = []*Call{router}
		if got, err := call.router(); (got == router) != c.moe || (err == nil) != c.moe {
			t.Errorf("%s: MoE has the router %v, %v", name, got, err)
		}
		if got := call.fromRouter(); got != c.qmoe {
			t.Errorf("%s: QMoE takes it: %v", name, got)
		}
	}
}

// TestChosenExperts: the number of experts of a token is the last dimension of ids or weights.
func TestChosenExperts(t *testing.T) {
	for _, c := range []struct {
		weights, ids []int64
		want         int64
	}{{[]int64{3, 2}, []int64{3, 2}, 2}, {nil, []int64{2}, 2}, {[]int64{3, 1}, nil, 1},
		{[]int64{3, 4}, []int64{3, -1}, 4},
		{nil, nil, -1}, {[]int64{3, -1}, []int64{3, 0}, -1}} {
		dims := make([][]int64, max(fused.QMoEIDs, fused.QMoEWeights)+1)
		dims[fused.QMoEWeights], dims[fused.QMoEIDs] = c.weights, c.ids
		if got := (&Call{Site: fused.Site{Dims: dims}}).topK(); got != c.want {
			t.Errorf("weights %v, ids %v: %d, want %d", c.weights, c.ids, got, c.want)
		}
	}
}
