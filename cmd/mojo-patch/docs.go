package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newDocs prints docs/cli.md; `make docs` writes it.
func newDocs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "docs",
		Short:  "Print the description of every command as Markdown",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(a.out, "<!-- Written by `make docs` from the commands themselves. -->\n# The command line\n\n")
			document(a.out, c.Root())
			return nil
		},
	}
}

// document writes the sections of a command and its subcommands.
func document(w io.Writer, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	c.InitDefaultHelpFlag()
	fmt.Fprintf(w, "## %s\n\n%s.\n\n", c.CommandPath(), c.Short)
	if c.Long != "" {
		fmt.Fprintf(w, "%s\n\n", c.Long)
	}
	if c.Runnable() {
		fmt.Fprintf(w, "```\n%s\n```\n\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(w, "Examples:\n\n```\n%s\n```\n\n", dedent(c.Example))
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(w, "Flags:\n\n```\n%s```\n\n", flags.FlagUsages())
	}
	if names := strings.Fields(c.Annotations[schemasOf]); len(names) > 0 {
		for i, name := range names {
			names[i] = fmt.Sprintf("[schemas/%s.json](schemas/%s.json)", name, name)
		}
		fmt.Fprintf(w, "Output of --json: %s.\n\n", strings.Join(names, " or "))
	}
	for _, sub := range c.Commands() {
		document(w, sub)
	}
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
