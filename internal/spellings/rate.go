package spellings

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/spellings/blocks"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/latentcache"
)

// Failure is a spelling with a wrong outcome.
type Failure struct {
	// Spelling is the original model, written anew: patching changes models.
	Spelling *Spelling
	Reason   string
}

// String returns the reason and the model, so that the case can be reproduced.
func (f *Failure) String() string {
	return f.Spelling.String() + ": " + f.Reason + "\n" + f.Spelling.Text()
}

// Rate counts the outcomes of the spellings of a kind.
type Rate struct {
	Kind Kind
	// Spellings counts the spellings; Found and Fused count those found and fused.
	Spellings, Found, Fused int
	// Changes counts the writers' changes of meaning, FusedChanges those that were fused as the block anyway.
	Changes, FusedChanges int
	// Edits counts edits of any kind, StillBlocks those that left a block with other operands or constants.
	Edits, StillBlocks int
	// Wrong counts patched models that compute something else.
	Wrong    int
	Failures []*Failure
}

func (r *Rate) fail(s *Spelling, format string, args ...any) {
	r.Failures = append(r.Failures, &Failure{s, fmt.Sprintf(format, args...)})
}

// Measure patches n spellings of a kind with consecutive seeds from first, as many changes of meaning, and a third as
// many models with an edit of any kind.
func Measure(k Kind, first uint64, n int) *Rate {
	r := &Rate{Kind: k}
	for i := range n {
		seed := first + uint64(i)
		r.spelling(Spell(k, seed), Spell(k, seed))
		r.change(k, seed)
		if i%3 == 0 {
			r.edit(k, seed)
		}
	}
	return r
}

// apply patches the model and compares it with a copy.
func (r *Rate) apply(s, copied *Spelling) (found, fused int, reason string) {
	report, err := rewrite.Apply(s.Model, rewrite.Request{AssumeAvailable: true,
		LatentCache: s.Kind.Name == blocks.Latents})
	switch {
	case errors.Is(err, latentcache.ErrLatentCache):
		return 0, 0, "; " + err.Error()
	case err != nil:
		r.Wrong++
		r.fail(copied, "%v", err)
		return 0, 0, ""
	}
	for _, p := range report.Patterns {
		if p.Name == s.Kind.Pattern || s.Change == "" && s.Read && p.Name == s.Kind.Within {
			found += p.Found
			fused += p.Fused
		}
	}
	for _, site := range report.Sites {
		if s.Kind.composed() && site.Op == s.Kind.Pattern && site.Pattern != s.Kind.Pattern {
			found++
			if site.Status == rewrite.Fused {
				fused++
			}
		}
		if site.Status != rewrite.Fused {
			reason += fmt.Sprintf("; %s of %s: %s", site.Status, site.Pattern, site.Reason)
		}
	}
	if !report.Changed {
		return found, fused, reason
	}
	if err := Same(s.Kind, copied.Model, s.Model); err != nil {
		r.Wrong++
		r.fail(copied, "patched, it returns other results: %v", err)
	}
	return found, fused, reason
}

func (r *Rate) spelling(s, copied *Spelling) {
	r.Spellings++
	found, fused, reason := r.apply(s, copied)
	if found > 0 {
		r.Found++
	}
	if fused > 0 { // more than one if other nodes read part of the result
		r.Fused++
		return
	}
	r.fail(copied, "%d found, %d fused%s", found, fused, reason)
}

func (r *Rate) change(k Kind, seed uint64) {
	s, _, err := Change(k, seed)
	if err != nil {
		r.fail(Spell(k, seed), "%v", err)
		return
	}
	if s == nil {
		return
	}
	copied, _ := spell(k, seed, s.Change)
	r.Changes++
	smaller := s.Smaller || s.Read && k.Pattern == "TopKRouter" // its choice is one router, read elsewhere
	if _, n, _ := r.apply(s, copied); n > 0 && !smaller {
		r.FusedChanges++
		r.fail(copied, "it is fused as %s", k.Pattern)
	}
}

func (r *Rate) edit(k Kind, seed uint64) {
	s, err := Edit(k, seed)
	if err != nil {
		return // no tried edit has an effect
	}
	copied, _ := Edit(k, seed)
	r.Edits++
	if _, fused, _ := r.apply(s, copied); fused > 0 {
		r.StillBlocks++
	}
}

// Table writes the rates in Markdown.
func Table(w io.Writer, rates []*Rate) {
	fmt.Fprintln(w, "| block | spellings | found | fused | changes of meaning | fused | other edits | a block still "+
		"| other results |")
	fmt.Fprintln(w, "| --- "+strings.Repeat("| ---: ", 8)+"|")
	for _, r := range rates {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.Kind.Name, r.Spellings, r.Found, r.Fused,
			r.Changes, r.FusedChanges, r.Edits, r.StillBlocks, r.Wrong)
	}
}
