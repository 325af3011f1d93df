package attention_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/attentions"
)

// TestPublished finds attention in the code of published models.
func TestPublished(t *testing.T) {
	for _, c := range attentions.Published() {
		t.Run(c.Name, func(t *testing.T) {
			got := found(t, c.Model())
			for part := range strings.SplitSeq(c.Want, ", ") {
				if !strings.Contains(got, part) {
					t.Errorf("%s\nwant %s", got, c.Want)
				}
			}
			missed := strings.HasPrefix(got, "missed") || got == "nothing"
			if missed && !strings.HasPrefix(c.Want, "missed") && c.Want != got {
				t.Error(got)
			}
		})
	}
}
