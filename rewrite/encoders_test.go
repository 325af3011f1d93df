package rewrite

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestEncoders finds every attention block of the bundled image and audio encoders.
func TestEncoders(t *testing.T) {
	b, err := os.ReadFile("../models/truth.json")
	if err != nil {
		t.Fatal(err)
	}
	var truth struct {
		Models map[string]struct {
			Attention int `json:"attention"`
		} `json:"models"`
	}
	if err := json.Unmarshal(b, &truth); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for name, m := range truth.Models {
		if m.Attention == 0 {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			r := apply(t, rewritetest.ReadModel(t, name))
			if p := r.pattern(fused.AttentionName); p.Fused != m.Attention {
				t.Errorf("%d of %d fused: %+v", p.Fused, m.Attention, r.Sites)
			}
		})
	}
	if tried < 4 {
		t.Errorf("%d models tried", tried)
	}
}
