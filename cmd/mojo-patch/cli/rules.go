package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const rulesOf = "rules" // the annotation of a command with the lines of Rules

// Rules adds rules about the flags of a command. A line has one of the forms
//
//	FLAG… requires OTHER…
//	FLAG… excludes OTHER…
//	FLAG… excludes OTHER…: REASON
//
// A flag requires one of the others. A flag with a value other than its default excludes each of the others. An other
// with a value, such as target=ort, counts only if its value is this one, or begins with it and "=" or "@". The help of
// a flag begins with what it requires; the help of a command ends with what its flags exclude.
func Rules(c *cobra.Command, lines ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, line := range lines {
		c.Annotations[rulesOf] += line + "\n"
		r := parseRule(line)
		for _, name := range r.Flags {
			if f := c.Flags().Lookup(name); f != nil && r.Requires { // a test demands the flag
				f.Usage = "with " + spelled(r.Others, " or ") + ": " + f.Usage
			}
		}
	}
}

// Rule is a line of Rules.
type Rule struct {
	Requires bool // the others are required, not excluded
	Flags    []string
	Others   []string
	Reason   string // of an exclusion, or ""
}

func parseRule(line string) Rule {
	line, reason, _ := strings.Cut(line, ": ")
	flags, others, requires := strings.Cut(line, " requires ")
	if !requires {
		flags, others, _ = strings.Cut(line, " excludes ")
	}
	return Rule{requires, strings.Fields(flags), strings.Fields(others), reason}
}

// RulesOf returns the rules of a command.
func RulesOf(c *cobra.Command) (list []Rule) {
	for line := range strings.Lines(c.Annotations[rulesOf]) {
		list = append(list, parseRule(strings.TrimSpace(line)))
	}
	return list
}

// CheckCommandLine checks a command line before its command runs. A command with --plan or --for sets more flags, which
// may be those that others require, and calls CheckRules itself.
func CheckCommandLine(c *cobra.Command, _ []string) error {
	if err := noStdout(c); err != nil {
		return err
	}
	return checkRules(c, c.Flags().Lookup("plan") == nil && c.Flags().Lookup("for") == nil)
}

// CheckRules returns an error if the flags of a command break a rule.
func CheckRules(c *cobra.Command) error { return checkRules(c, true) }

func checkRules(c *cobra.Command, complete bool) error {
	for _, r := range RulesOf(c) {
		for _, name := range r.Flags {
			if r.Requires {
				met := slices.ContainsFunc(r.Others, func(o string) bool { return chosen(c, o) })
				if complete && !met && given(c, name) {
					return fmt.Errorf("--%s requires %s", name, spelled(r.Others, " or "))
				}
				continue
			}
			i := slices.IndexFunc(r.Others, func(o string) bool { return excluded(c, o) })
			if i < 0 || !chosen(c, name) {
				continue
			}
			text := fmt.Sprintf("%s cannot be combined with --%s", spelled(r.Others[i:i+1], ""), name)
			if r.Reason != "" {
				text += ": " + r.Reason
			}
			return errors.New(text)
		}
	}
	return nil
}

// Excluding returns the name of a given flag that the named one cannot be combined with if it has this value, or "".
func Excluding(c *cobra.Command, name, value string) string {
	for _, r := range RulesOf(c) {
		for _, flag := range r.Flags {
			for _, text := range r.Others {
				other, want, valued := strings.Cut(text, "=")
				switch {
				case r.Requires:
				case flag == name && excluded(c, text):
					return other
				case other == name && (!valued || matches(value, want)) && chosen(c, flag):
					return flag
				}
			}
		}
	}
	return ""
}

// Exclusions lists which flags of a command exclude each other, one line for each rule.
func Exclusions(c *cobra.Command) (lines []string) {
	for _, r := range RulesOf(c) {
		if r.Requires {
			continue
		}
		line := fmt.Sprintf("%s with %s", spelled(r.Flags, " or "), spelled(r.Others, ", "))
		if r.Reason != "" {
			line += ": " + r.Reason
		}
		lines = append(lines, line)
	}
	return lines
}

// given reports whether a flag was given. A string, or a bool that is off, counts as not given if it has its default.
func given(c *cobra.Command, name string) bool {
	f := c.Flags().Lookup(name)
	if f == nil || !f.Changed {
		return false
	}
	unset := f.Value.Type() == "string" || f.DefValue == "false"
	return !unset || f.Value.String() != f.DefValue
}

// chosen reports whether a flag has the value after "=", or any other than its default.
func chosen(c *cobra.Command, flag string) bool {
	name, want, valued := strings.Cut(flag, "=")
	f := c.Flags().Lookup(name)
	switch {
	case f == nil:
		return false
	case valued:
		return matches(f.Value.String(), want)
	}
	return f.Changed && f.Value.String() != f.DefValue
}

func matches(value, want string) bool {
	rest, begins := strings.CutPrefix(value, want)
	return begins && (rest == "" || strings.ContainsAny(rest[:1], "=@"))
}

func excluded(c *cobra.Command, other string) bool {
	if strings.Contains(other, "=") {
		return chosen(c, other)
	}
	return given(c, other)
}

// spelled spells flags as the command line has them.
func spelled(flags []string, separator string) string {
	list := make([]string, len(flags))
	for i, f := range flags {
		list[i] = "--" + strings.Replace(f, "=", " ", 1)
	}
	return strings.Join(list, separator)
}
