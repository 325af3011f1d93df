package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// HeadingsOf is the annotation of a command with many flags: first a line with the names of the flags that most people
// need, then lines of a heading, a colon and names. The help and docs/cli.md list the flags in this order.
const HeadingsOf = "headings"

// Headings that several commands share.
const (
	InputsHeading  = "Inputs: inputs dim seed"
	BoundsHeading  = "Bounds: atol rtol logits max-kl min-top1"
	RuntimeHeading = "Runtime: backend provider provider-option provider-library provider-device provider-only " +
		"kernels optimize threads products evaluator"
	PathsHeading = "Paths: onnxruntime kernels-lib"
	SafeHeading  = "Float16: safe safe-inputs safe-headroom strict"
)

// Headings sets the headings of a command: first the names of the usual flags, then lines of a heading, a colon and
// names.
func Headings(c *cobra.Command, lines ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[HeadingsOf] = strings.Join(lines, "\n")
}

// FlagGroup is a heading with its flags, in order.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

const globalTitle = "Global flags"

// FlagGroups returns the flags of a command by heading, without the global flags.
func FlagGroups(c *cobra.Command) []FlagGroup {
	c.InitDefaultHelpFlag()
	local := c.NonInheritedFlags()
	table := c.Annotations[HeadingsOf]
	if table == "" {
		return []FlagGroup{{"Flags", local}}
	}
	var groups []FlagGroup
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
		groups = append(groups, FlagGroup{title, set})
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

// Help prints the description of a command. Of a command with headings, the first paragraph comes first, and the others
// follow the flags.
func Help(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	first, others := c.Long, ""
	if c.Annotations[HeadingsOf] != "" {
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

// Usage prints how a command is called: its arguments, examples, subcommands and flags.
func Usage(c *cobra.Command) error {
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
	groups := FlagGroups(c)
	if inherited := c.InheritedFlags(); inherited.HasAvailableFlags() {
		groups = append(groups, FlagGroup{globalTitle, inherited})
	}
	for _, g := range groups {
		if g.Flags.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", g.Title, g.Flags.FlagUsagesWrapped(width))
		}
	}
	if lines := Exclusions(c); len(lines) > 0 {
		fmt.Fprint(w, "\nNot together:\n")
		for _, line := range lines {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(wrapped(line, width-6), "\n", "\n      "))
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
