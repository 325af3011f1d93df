package moe_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/spellings"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestSpelledMixtures finds routers and experts in some spellings. Package spellings patches these and many more.
func TestSpelledMixtures(t *testing.T) {
	const each = 12
	for _, k := range spellings.Kinds() {
		if k.Pattern != "MoE" && k.Pattern != "TopKRouter" {
			continue
		}
		for seed := range uint64(each) {
			s := spellings.Spell(k, 1000+seed)
			facts := infer.Analyze(s.Model)
			found, reason := 0, ""
			for _, g := range s.Model.Graphs() {
				matches, misses := patterns.Builtin().Find(g, facts)
				for _, m := range matches {
					if m.Pattern == k.Pattern {
						found++
					}
				}
				for _, m := range misses {
					if m.Pattern == k.Pattern {
						reason = m.Reason.Error()
					}
				}
			}
			if found == 0 {
				t.Errorf("%s: %s", s, reason)
			}
		}
	}
}
