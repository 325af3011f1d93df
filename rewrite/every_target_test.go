package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// TestEveryTarget plans a model with branches for every target that takes its open sizes.
func TestEveryTarget(t *testing.T) {
	tried := 0
	for _, to := range target.All() {
		t.Run(to.Name, func(t *testing.T) {
			r, err := Apply(rewritetest.ReadModel(t, "llama-merged-ts-fp32"), Request{Target: to})
			if err != nil && strings.Contains(err.Error(), "takes static shapes") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if tried++; r.Fused() == 0 {
				t.Errorf("nothing is fused: %+v", r.Patterns)
			}
		})
	}
	if tried < 3 {
		t.Errorf("%d targets tried", tried)
	}
}
