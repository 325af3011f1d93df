package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// inQuotes are the names in a text: what is otherwise equal is one reason.
var inQuotes = regexp.MustCompile(`"[^"]*"`)

// alikeShown bounds how many nodes are named for one reason.
const alikeShown = 4

// write prints the reasons, those that differ by names alone together unless all is set.
func (w *why) write(out io.Writer, all bool) {
	groups := map[string][]spot{}
	key := func(x explanation) string {
		s := fmt.Sprint(x.Status, x.Node.Op, x.Graph, x.Pattern, x.Matched, x.Size, x.Around, x.Refusal, x.Differences)
		return inQuotes.ReplaceAllString(s, `""`)
	}
	for _, x := range w.Reasons {
		groups[key(x)] = append(groups[key(x)], x.Node)
	}
	for _, x := range w.Reasons {
		spots := groups[key(x)]
		if !all && spots[0] != x.Node {
			continue
		}
		x.write(out)
		if rest := spots[1:]; !all && len(rest) > 0 {
			names := make([]string, 0, alikeShown)
			for _, s := range rest[:min(len(rest), alikeShown)] {
				names = append(names, fmt.Sprintf("%q", s.Name))
			}
			more := ""
			if len(rest) > alikeShown {
				more = fmt.Sprintf(" and %d more (-v)", len(rest)-alikeShown)
			}
			fmt.Fprintf(out, "  the same at %s%s\n", strings.Join(names, ", "), more)
		}
	}
	if len(w.Reasons) == 0 {
		fmt.Fprintf(out, "%s: nothing to explain: %s would be fused, and no other node looks like one\n", w.Path,
			counted(w.Fused, "site"))
	}
}

// String says where and what.
func (d difference) String() string {
	if d.Why != "" {
		return fmt.Sprintf("at %s: %s", d.At, d.Why)
	}
	where := "stopped at"
	if d.Condition {
		where = "a condition does not hold at"
	}
	return fmt.Sprintf("%s %s: expected %s, found %s", where, d.At, d.Expected, d.Found)
}

func (x *explanation) write(out io.Writer) {
	in := ""
	if x.Graph != "" {
		in = " in " + x.Graph
	}
	fmt.Fprintf(out, "%s%s: ", x.Node, in)
	switch x.Status {
	case whyRefused:
		fmt.Fprintf(out, "pattern %s matches (%s) and is refused\n  because %s\n", x.Pattern,
			counted(x.Matched, "node"), x.Refusal)
	case whyUnlike:
		fmt.Fprintf(out, "no pattern starts like this: %s (a %s stands in %s)\n", x.Around, x.Node.Op,
			strings.Join(x.Patterns, ", "))
	default:
		size := ""
		switch {
		case x.Size > 0 && x.Matched == x.Size:
			size = fmt.Sprintf(" (all %d nodes)", x.Size)
		case x.Size > 0:
			size = fmt.Sprintf(" (%d of %d nodes)", x.Matched, x.Size)
		}
		fmt.Fprintf(out, "nearest pattern %s%s\n", x.Pattern, size)
	}
	for _, d := range x.Differences {
		fmt.Fprintf(out, "  %s\n", d)
	}
	if x.Hint != "" {
		fmt.Fprintf(out, "  hint: %s\n", x.Hint)
	}
}
