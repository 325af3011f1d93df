// Package docs is the command docs.
package docs

import (
	"fmt"
	"io"
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
			document(a.Out, c.Root())
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
	for _, g := range cli.FlagGroups(c) {
		if g.Flags.HasAvailableFlags() {
			fmt.Fprintf(w, "| %s | |\n| --- | --- |\n%s\n", g.Title, flagRows(g.Flags))
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
	for _, sub := range c.Commands() {
		document(w, sub)
	}
}

// flagRows returns the flags as rows of a table: the flag with the type of its value, and its description.
func flagRows(flags *pflag.FlagSet) string {
	var b strings.Builder
	escape := strings.NewReplacer("|", "\\|", "<", "\\<")
	for line := range strings.Lines(flags.FlagUsages()) {
		flag, text, _ := strings.Cut(strings.TrimSpace(line), "   ")
		fmt.Fprintf(&b, "| `%s` | %s |\n", flag, escape.Replace(strings.TrimSpace(text)))
	}
	return b.String()
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
