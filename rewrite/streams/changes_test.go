package streams_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// changes are the changes of the small models, by test: the number of values that overflow; the first value, exponent
// and number of values of each stream, with its greatest value in parentheses; added products; values that stay; and
// the number of scaled constants and epsilons, and of elements that become 0.
//
//go:embed testdata/changes.txt
var changes string

func checkChanges(t *testing.T, r *streams.SafeReport) {
	t.Helper()
	text := strings.ReplaceAll(t.Name(), "_", " ") + fmt.Sprintf(": %d over", r.Overflowing)
	for _, s := range r.Scaled {
		text += fmt.Sprintf("; %s 2^%d x%d (%s)", s.Value, s.Exponent, s.Values, s.GreatestOf)
	}
	for _, b := range r.Bridges {
		text += fmt.Sprintf("; %s 2^%d %s", b.Value, b.Exponent, b.Node)
	}
	for _, s := range r.Stays {
		text += "; stays " + s.Value
	}
	text += fmt.Sprintf("; %d+%d constants, %d lost", r.Constants, r.Epsilons, r.Lost)
	small := slices.ContainsFunc([]string{"TestBodies", "TestBridges", "TestCases", "TestMasks",
		"TestStays"}, func(name string) bool { return strings.HasPrefix(text, name) })
	if small && !strings.Contains("\n"+changes, "\n"+text+"\n") {
		t.Errorf("not in testdata/changes.txt: %s", text)
	}
}
