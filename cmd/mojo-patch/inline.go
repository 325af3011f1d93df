package main

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// inlineFlag is --inline, for every command that looks for patterns.
type inlineFlag struct{ mode string }

func (f *inlineFlag) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "inline", string(rewrite.InlineAuto),
		"functions of the model to replace by their bodies first: auto (those that call or are called by functions, "+
			"or hold parts of a mixture of experts), all, none")
	completeValues(c, "inline", func() []string {
		return []string{string(rewrite.InlineAuto), string(rewrite.InlineAll), string(rewrite.InlineNone)}
	}, false)
}

// option is the flag for a search.
func (f *inlineFlag) option() (rewrite.Option, error) {
	mode, err := rewrite.ParseInline(f.mode)
	if err != nil {
		return nil, fmt.Errorf("--inline: %w", err)
	}
	return rewrite.WithInline(mode), nil
}
