package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// TestDistinctSitesAreBounded patches a graph of norms with distinct epsilons.
func TestDistinctSitesAreBounded(t *testing.T) {
	shape, ok := hostile.Find("blocks-RMSNorm-epsilons")
	if !ok {
		t.Fatal("no such shape")
	}
	const norms = sites.MaxSites + 20
	r, err := Apply(shape.Model(6*norms+2), Request{})
	if err != nil {
		t.Fatal(err)
	}
	fused, refused := 0, 0
	for _, s := range r.Sites {
		switch {
		case s.Status == Fused:
			fused++
		case strings.Contains(s.Reason, "--verify all"):
			refused++
		}
	}
	if fused != sites.MaxSites || refused != norms-sites.MaxSites {
		t.Errorf("%d sites fused and %d refused, not %d and %d", fused, refused, sites.MaxSites, norms-sites.MaxSites)
	}
}
