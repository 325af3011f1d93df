package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestUnread demands that patching leaves no unread initializer, of which onnxruntime warns, and keeps one that was
// unread before.
func TestUnread(t *testing.T) {
	for _, name := range []string{"qwen3-dynamo-fp32", "llama-kv-dynamo-fp32"} {
		m := rewritetest.ReadModel(t, name)
		before := m.Graph.AddInitializer(onnx.NewInt64s("before", []int64{1}))
		r := apply(t, m)
		if !r.Changed {
			t.Errorf("%s: not patched", name)
		}
		for _, v := range m.Graph.Initializers() {
			if unread := len(v.Uses()) == 0 && !v.IsOutput(); unread != (v == before) {
				t.Errorf("%s: initializer %q, unread: %v", name, v.Name, unread)
			}
		}
		if m.Graph.Value(before.Name) == nil {
			t.Errorf("%s: an initializer that nothing read before is gone", name)
		}
	}
}

// TestFillTakenOutputs: a TopK whose values still have readers keeps both outputs, which it must have, when a router
// takes over its indices.
func TestFillTakenOutputs(t *testing.T) {
	for _, dies := range []bool{false, true} {
		b := rewritetest.New(t, 20, onnx.Float)
		_, ids := b.TopK(b.In("x", 2, 8), 3)
		topK := ids.Producer
		w := &writer{scope: &pass.Scope{Graph: b.Graph}, taken: []taken{{topK, 1, ids}}}
		b.Graph.NewNode("TopKRouter", topK.Inputs[:1]).TakeOutput(1, ids)
		if dies {
			topK.Graph = nil
		}
		w.fill()
		if v := topK.OutputValue(1); (v == nil) != dies || v == ids || v != nil && v.Name == ids.Name {
			t.Errorf("removed %v: %v", dies, v)
		}
	}
}
