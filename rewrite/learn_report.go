package rewrite

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
)

// LearnReport lists the patterns that were learned from a model (Request.Learn).
type LearnReport struct {
	Fitted int `json:"fitted"` // blocks that were fitted and are fused
	Learnt int `json:"learnt"` // those with a pattern
	// in the order of the file
	Patterns []LearntPattern `json:"patterns"`
	Left     []UnlearntSite  `json:"left,omitempty"` // blocks that no pattern was written for
	// the time to find all blocks of the model without and with the patterns; 0 if there are no patterns
	FindMS       float64 `json:"find_ms"`
	FindLearntMS float64 `json:"find_learnt_ms"`
	// Text is the pattern file.
	Text string `json:"-"`
}

// LearntPattern is a pattern that was learned.
type LearntPattern struct {
	Name    string   `json:"name"`
	Op      string   `json:"op"`
	Sites   []string `json:"sites"`             // ids of the sites that it was learned from
	Numbers []string `json:"numbers,omitempty"` // that may differ elsewhere
	Text    string   `json:"-"`                 // of this pattern
}

// UnlearntSite is a block that no pattern was written for.
type UnlearntSite struct {
	ID     string `json:"id"`
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// writeText writes the report for people.
func (r *LearnReport) writeText(b *strings.Builder) {
	if r == nil {
		return
	}
	if r.Fitted == 0 {
		b.WriteString("learned nothing: no block was fitted, because patterns find all fused blocks\n")
	} else {
		fmt.Fprintf(b, "learned %s for %d of %s\n", english.Counted(len(r.Patterns), "pattern"), r.Learnt,
			english.Counted(r.Fitted, "fitted block"))
	}
	for _, p := range r.Patterns {
		fmt.Fprintf(b, "  %s: %s", p.Name, english.Counted(len(p.Sites), "block"))
		if len(p.Numbers) > 0 {
			fmt.Fprintf(b, "; may be another number: %s", strings.Join(p.Numbers, ", "))
		}
		b.WriteByte('\n')
	}
	for _, s := range r.Left {
		fmt.Fprintf(b, "  not learned: %s: %s\n", s.ID, s.Reason)
	}
	if len(r.Patterns) > 0 {
		what := "saves"
		if r.FindLearntMS > r.FindMS {
			what = "costs"
		}
		fmt.Fprintf(b, "finding all blocks took %.1f ms, and %.1f ms with the patterns: the next run %s %.1f ms\n",
			r.FindMS, r.FindLearntMS, what, max(r.FindMS-r.FindLearntMS, r.FindLearntMS-r.FindMS))
	}
}
