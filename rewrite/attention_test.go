package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// attentionModels are exports with caches, windows, caps, sinks, values of another width than keys, float32 inside
// float16, and the standard's op. Each has two blocks.
var attentionModels = []string{"llama-kv-dynamo-fp32", "llama-dynamo-fp32", "gemma2-ts-fp32",
	"gptoss-batched_mm-dynamo-fp32", "deepseek3-batched_mm-ts-fp32", "llama-dynamo-bf16",
	"llama-dynamo23-fp32"}

// TestAttentionOfExports patches exports and compares them with the originals on left padding, which goldens lack: the
// result for a query that can attend to no key depends on the exporter.
func TestAttentionOfExports(t *testing.T) {
	for _, name := range attentionModels {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, name)
			want := rewritetest.RunPadded(t, m)
			r := apply(t, m)
			if p := r.pattern("Attention"); p.Found != 2 || p.Fused != 2 {
				t.Errorf("%d found, %d fused", p.Found, p.Fused)
			}
			if p := r.pattern("KeyTranspose"); p.Found != 0 {
				t.Errorf("%d transpositions of keys beside", p.Found)
			}
			for name, w := range want {
				got := rewritetest.RunPadded(t, m)[name]
				d, scale := prove.Distance(w.F, got.F)
				typ := w.DataType
				if strings.HasSuffix(m.Path, "fp16.onnx") { // cast in the end
					typ = onnx.Float16
				}
				if allowed := 64 * prove.Spacing(typ, scale); d > allowed {
					t.Errorf("%s differs by %g, %g allowed", name, d, allowed)
				}
			}
		})
	}
}

// TestAttentionIsChecked replaces nodes with slightly different ops: each must be refused.
func TestAttentionIsChecked(t *testing.T) {
	set := func(name string, change func(a *onnx.Attribute)) func(n *onnx.Node) {
		return func(n *onnx.Node) {
			for _, a := range n.Attributes {
				if a.Name == name {
					change(a)
				}
			}
		}
	}
	other := func(a, b string) func(*onnx.Attribute) {
		return func(at *onnx.Attribute) {
			if at.String == a {
				at.String = b
			} else {
				at.String = a
			}
		}
	}
	for _, c := range []struct {
		name, model string
		change      func(n *onnx.Node)
	}{
		{"not causal", "llama-kv-dynamo-fp32", set("causal", func(a *onnx.Attribute) { a.Int = 0 })},
		{"a window of two", "llama-kv-dynamo-fp32", set("window", func(a *onnx.Attribute) { a.Int = 2 })},
		{"one key more", "gemma2-ts-fp32", set("window", func(a *onnx.Attribute) { a.Int++ })},
		{"one key less", "gemma2-ts-fp32", set("window", func(a *onnx.Attribute) { a.Int = max(a.Int-1, 0) })},
		{"another scale", "llama-dynamo-fp32", set("scale", func(a *onnx.Attribute) { a.Float *= 1.01 })},
		{"another cap", "gemma2-ts-fp32", set("softcap", func(a *onnx.Attribute) { a.Float /= 2 })},
		{"mean for zero", "llama-dynamo-fp32", set("empty", other("zero", "mean"))},
		{"zero for mean", "llama-kv-dynamo-fp32", set("empty", other("zero", "mean"))},
		{"heads over and over", "llama-kv-dynamo-fp32", set("head_order", other("blocked", "cyclic"))},
		{"no sink", "gptoss-batched_mm-dynamo-fp32", func(n *onnx.Node) { n.SetInput(8, nil) }},
		{"padding is seen", "llama-dynamo-fp32", func(n *onnx.Node) { n.SetInput(3, nil) }},
		{"values for keys", "llama-kv-dynamo-fp32", func(n *onnx.Node) {
			k := n.Inputs[4]
			n.SetInput(4, n.Inputs[5])
			n.SetInput(5, k)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, c.model)
			changed := func(g *onnx.Graph, facts *infer.Facts) ([]*patterns.Match, []*patterns.Miss) {
				found, misses := patterns.Builtin().Find(g, facts)
				for _, match := range found {
					match.Smaller = nil // it is right
					for _, n := range match.Replacement.Nodes {
						if n.OpType == fused.AttentionName {
							c.change(n)
						}
					}
				}
				return found, misses
			}
			r := apply(t, m, Request{find: changed})
			refused := 0
			for _, s := range r.Sites {
				if s.Pattern == fused.AttentionName && s.Status == Refused && (s.Code == reason.Differs ||
					s.Code == reason.Unread) {
					refused++
				}
			}
			if p := r.pattern(fused.AttentionName); refused == 0 || p.Fused+refused != 2 {
				t.Errorf("%d fused, %d refused", p.Fused, refused)
			}
		})
	}
}
