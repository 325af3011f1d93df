package rewrite

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
)

// TestNearMissesGivenUp demands that the report tells if the search for near misses was cut short.
func TestNearMissesGivenUp(t *testing.T) {
	shape, ok := hostile.Find("misses-norm-axis")
	if !ok {
		t.Fatal("no such shape")
	}
	for nodes, want := range map[int]bool{100: false, 40000: true} {
		r := apply(t, shape.Model(nodes))
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(text.String(), "the search for near misses stopped at "); said != want {
			t.Errorf("%d nodes: said %v\n%.2000s", nodes, said, &text)
		}
	}
}
