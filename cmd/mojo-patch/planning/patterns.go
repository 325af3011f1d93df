package planning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/spf13/cobra"
)

func knownPatterns(set *patterns.Set, names []string) error {
	known := NamesOf(set)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown pattern %q%s; the patterns are %s", name, english.Suggestion(name, known),
				strings.Join(known, ", "))
		}
	}
	return nil
}

// PatternNames lists the built-in patterns.
func PatternNames() []string { return NamesOf(patterns.Builtin()) }

// InlineFlag is --inline, for every command that looks for patterns.
type InlineFlag struct{ mode string }

// AddTo adds the flag to a command.
func (f *InlineFlag) AddTo(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "inline", string(inline.Auto),
		"functions of the model to inline first: auto (functions that call or are called by functions, "+
			"or that are a block or contain a part of one), all or none")
	cli.CompleteValues(c, "inline", func() []string {
		return []string{string(inline.Auto), string(inline.All), string(inline.None)}
	}, false)
}

// Value returns the mode, or an error if the flag has another value.
func (f *InlineFlag) Value() (inline.Mode, error) {
	mode, err := inline.ParseMode(f.mode)
	if err != nil {
		return "", fmt.Errorf("--inline: %w", err)
	}
	return mode, nil
}

// PatternFlag is --patterns, the user's pattern files, for every command that looks for patterns.
type PatternFlag struct{ Paths []string }

// AddTo adds the flag to a command.
func (f *PatternFlag) AddTo(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.Paths, "patterns", nil,
		"also search for the patterns of this file, or of the .pat files in this folder (repeatable; see "+
			"docs/patterns.md)")
	cli.CompleteFile(c, "patterns", "pat")
}

// Set returns the patterns of the files, followed by the built-in ones.
func (f *PatternFlag) Set() (*patterns.Set, error) {
	if len(f.Paths) == 0 {
		return patterns.Builtin(), nil
	}
	return patterns.Load(f.Paths...)
}

// NamesOf lists the distinct names in a set: a pattern may be written in several ways.
func NamesOf(s *patterns.Set) []string {
	var names []string
	for _, p := range s.Patterns {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}
