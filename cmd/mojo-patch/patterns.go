package main

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/spf13/cobra"
)

// patternFlag is --patterns: pattern files of the user's, for every command that looks for patterns.
type patternFlag struct{ paths []string }

func (f *patternFlag) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.paths, "patterns", nil,
		"look for the patterns of this file, or of the .pat files in this folder, as well (repeatable; see "+
			"docs/patterns.md)")
	completeFile(c, "patterns", "pat")
}

// set returns the patterns to look for: those of the files, then the built-in ones.
func (f *patternFlag) set() (*patterns.Set, error) {
	if len(f.paths) == 0 {
		return patterns.Builtin(), nil
	}
	return patterns.Load(f.paths...)
}

// namesOf lists the patterns of a set, each name once: one pattern may be written in several ways.
func namesOf(s *patterns.Set) []string {
	var names []string
	for _, p := range s.Patterns {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}
