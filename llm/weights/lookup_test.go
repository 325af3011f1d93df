package weights

import (
	"slices"
	"testing"
)

// TestVariants keeps the part before a layer number.
func TestVariants(t *testing.T) {
	got := variants("m.model.layers.0.norm.weight")
	if want := []string{"m.model.layers.0.norm.weight", "model.layers.0.norm.weight",
		"layers.0.norm.weight"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
