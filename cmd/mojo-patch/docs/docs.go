// Package docs is the command docs.
package docs

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New prints docs/cli.md; `make docs` writes it.
func New(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:    "docs",
		Short:  "Print the description of every command as Markdown",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(a.Out, "<!-- Written by `make docs` from the commands themselves. -->\n# The command line\n\n")
			shared := sharedFlags(c.Root())
			visit(c.Root(), func(c *cobra.Command) { document(a.Out, c, shared) })
			fmt.Fprintf(a.Out, "## Flags of several commands\n\n| Flags | |\n| --- | --- |\n")
			for _, row := range slices.Sorted(maps.Keys(shared)) {
				fmt.Fprint(a.Out, row)
			}
			return nil
		},
	}
}

// sharedFlags returns the rows of flags that more than two commands have in the same words, unless there are several
// such rows of a flag.
func sharedFlags(root *cobra.Command) map[string]bool {
	count := map[string]int{}
	visit(root, func(c *cobra.Command) {
		for _, g := range cli.FlagGroups(c) {
			for _, row := range flagRows(g.Flags) {
				count[row]++
			}
		}
	})
	shared := map[string]bool{}
	names := map[string]int{}
	for row, n := range count {
		if n > 2 {
			shared[row] = true
			names[flagOf(row)]++
		}
	}
	maps.DeleteFunc(shared, func(row string, _ bool) bool { return names[flagOf(row)] > 1 })
	return shared
}

// visit calls f for a command and its subcommands that the help shows.
func visit(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	f(c)
	for _, sub := range c.Commands() {
		visit(sub, f)
	}
}

// document writes the section of a command. Of shared flags it writes only the names.
func document(w io.Writer, c *cobra.Command, shared map[string]bool) {
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
	for _, g := range cli.FlagGroups(c) {
		if g.Flags.HasAvailableFlags() {
			var named []string
			fmt.Fprintf(w, "| %s | |\n| --- | --- |\n", g.Title)
			for _, row := range flagRows(g.Flags) {
				if shared[row] {
					named = append(named, flagOf(row))
				} else {
					fmt.Fprint(w, row)
				}
			}
			if len(named) > 0 {
				fmt.Fprintf(w, "| `%s` | [below](#flags-of-several-commands) |\n", strings.Join(named, "`, `"))
			}
			fmt.Fprintln(w)
		}
	}
	if lines := cli.Exclusions(c); len(lines) > 0 {
		fmt.Fprintf(w, "Not together:\n\n- %s\n\n", strings.Join(lines, "\n- "))
	}
	if names := strings.Fields(c.Annotations[cli.SchemasOf]); len(names) > 0 {
		for i, name := range names {
			names[i] = fmt.Sprintf("[schemas/%s.json](schemas/%s.json)", name, name)
		}
		fmt.Fprintf(w, "Output of --json: %s.\n\n", strings.Join(names, " or "))
	}
}

// flagRows returns the flags as rows of a table: the flag with the type of its value, and its description.
func flagRows(flags *pflag.FlagSet) (rows []string) {
	escape := strings.NewReplacer("|", "\\|", "<", "\\<")
	for line := range strings.Lines(flags.FlagUsages()) {
		flag, text, _ := strings.Cut(strings.TrimSpace(line), "   ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", flag, escape.Replace(strings.TrimSpace(text))))
	}
	return rows
}

// flagOf returns the flag of a row.
func flagOf(row string) string { return strings.Split(row, "`")[1] }

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
