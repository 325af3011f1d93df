package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// TestPagedForTarget: a target's op replaces attention on pools if it is proven equal.
func TestPagedForTarget(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	// wrong writes the op for another window.
	wrong := *ort
	wrong.Rules = slices.Clone(ort.Rules)
	for i, r := range wrong.Rules {
		if r.Op == fused.PagedAttentionName {
			wrong.Rules[i].Write = func(c *target.Call) error {
				a := fused.Read[fused.PagedAttention](c.Site.Attributes)
				a.Window = 3
				c.Site.Attributes = a.Attributes()
				return r.Write(c)
			}
		}
	}
	for _, c := range []struct {
		name, reason string
		block        int64
		to           *target.Target
		off          bool
	}{
		{"equal", "", 16, ort, false},
		{"assumed", "", 16, ort, true},
		{"small blocks", "takes blocks of 16, 32, 64, … tokens, not 8", 8, ort, false},
		{"wrong", "PagedAttention of ort instead of the op", 16, &wrong, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if _, err := Apply(m, Request{DType: onnx.Float16, PagedCache: c.block, Verify: VerifyOff}); err != nil {
				t.Fatal(err)
			}
			verify := VerifyDistinct
			if c.off {
				verify = VerifyOff
			}
			r, err := Apply(m, Request{Target: c.to, Verify: verify})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"mojo.PagedAttention": 2}
			if c.reason == "" {
				want = map[string]int{"com.microsoft.PagedAttention": 2}
			}
			got := map[string]int{}
			for _, n := range m.Graph.Nodes {
				if n.OpType == fused.PagedAttentionName {
					got[n.Domain+"."+n.OpType]++
				}
			}
			if len(got) != 1 || len(r.Sites) != 2 || r.Changed != (c.reason == "") ||
				(len(r.Assumed) > 0) != c.off {
				t.Errorf("%v, want %v; changed %t, assumed %v", got, want, r.Changed, r.Assumed)
			}
			for op, n := range want {
				if got[op] != n {
					t.Errorf("%v, want %v", got, want)
				}
			}
			for _, s := range r.Sites {
				if (s.Status == Open) != (c.reason != "") || !strings.Contains(s.Reason, c.reason) {
					t.Errorf("%s: %s, want %q", s.Status, s.Reason, c.reason)
				}
			}
		})
	}
}
