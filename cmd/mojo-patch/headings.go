package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// headingsOf is the annotation of a command with many flags: first a line with the names of the flags that most people
// need, then lines of a heading, a colon and names. The help and docs/cli.md list the flags in this order.
const headingsOf = "headings"

// Headings that several commands share.
const (
	inputsHeading  = "Inputs: inputs dim seed"
	boundsHeading  = "Bounds: atol rtol logits max-kl min-top1"
	runtimeHeading = "Runtime: backend provider provider-option provider-library provider-device provider-only " +
		"kernels optimize threads evaluator"
	pathsHeading = "Paths: onnxruntime kernels-lib"
	safeHeading  = "Float16: safe safe-inputs safe-headroom strict"
)

func headings(c *cobra.Command, lines ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[headingsOf] = strings.Join(lines, "\n")
}

// flagGroup is a heading with its flags, in order.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

const globalTitle = "Global flags"

// flagGroups returns the flags of a command by heading, without the global flags.
func flagGroups(c *cobra.Command) []flagGroup {
	c.InitDefaultHelpFlag()
	local := c.NonInheritedFlags()
	table := c.Annotations[headingsOf]
	if table == "" {
		return []flagGroup{{"Flags", local}}
	}
	var groups []flagGroup
	for line := range strings.SplitSeq(table, "\n") {
		title, names, named := strings.Cut(line, ": ")
		if !named {
			title, names = "Flags", line
		}
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		set.SortFlags = false
		for name := range strings.FieldsSeq(names) {
			if f := local.Lookup(name); f != nil { // a test demands it
				set.AddFlag(f)
			}
		}
		groups = append(groups, flagGroup{title, set})
	}
	return groups
}

// helpWidth is the width of the help if it is not printed to a terminal.
const helpWidth = 100

func widthOf(w io.Writer) int {
	if r, ok := w.(*results); ok {
		w = r.Writer
	}
	if f, ok := raw(w).(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return helpWidth
}

// help prints the description of a command. Of a command with headings, the first paragraph comes first, and the others
// follow the flags.
func help(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	first, others := c.Long, ""
	if c.Annotations[headingsOf] != "" {
		first, others, _ = strings.Cut(c.Long, "\n\n")
	}
	if first == "" {
		first = c.Short
	}
	fmt.Fprintf(w, "%s\n\n", wrapped(first, widthOf(w)))
	c.Usage()
	if others != "" {
		fmt.Fprintf(w, "\nDetails:\n\n%s\n", wrapped(others, widthOf(w)))
	}
}

// usage prints how a command is called: its arguments, examples, subcommands and flags.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	width := widthOf(w)
	fmt.Fprintln(w, "Usage:")
	if c.Runnable() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", c.CommandPath())
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	groups := flagGroups(c)
	if inherited := c.InheritedFlags(); inherited.HasAvailableFlags() {
		groups = append(groups, flagGroup{globalTitle, inherited})
	}
	for _, g := range groups {
		if g.flags.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(width))
		}
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s [command] --help describes a command.\n", c.CommandPath())
	}
	return nil
}

// wrapped breaks the lines of text at width, except lines that begin with a space.
func wrapped(text string, width int) string {
	var b strings.Builder
	column := 0
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line + "\n")
			column = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			n := len([]rune(word))
			switch {
			case column == 0:
			case column+1+n > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
