package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
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
