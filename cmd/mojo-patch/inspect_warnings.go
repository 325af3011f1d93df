package main

import (
	"fmt"
	"io"

	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// warning says what is wrong with a model as it was exported.
type warning struct {
	Pattern string `json:"pattern"`
	Node    string `json:"node"`
	Text    string `json:"text"`
	Mended  bool   `json:"mended"` // by apply
}

// warnings finds the mixtures of experts that fail for some inputs, and those that lack experts.
func warnings(r *rewrite.Report) []warning {
	var list []warning
	for _, x := range r.Repairs {
		list = append(list, warning{x.Pattern, x.Node, x.Text, true})
	}
	for _, s := range r.Sites {
		if s.Status != rewrite.Fused && s.Code == reason.ExpertsAbsent {
			list = append(list, warning{s.Pattern, s.Node, s.Reason, false})
		}
	}
	return list
}

func (r *census) writeWarnings(w io.Writer) {
	for _, x := range r.Warnings {
		mended := ""
		if x.Mended {
			mended = ", and apply mends it"
		}
		fmt.Fprintf(w, "warning: %s at %s: %s%s\n", x.Pattern, x.Node, x.Text, mended)
	}
}
