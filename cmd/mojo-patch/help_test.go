package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelp demands a description and an example for every command, and that docs/cli.md matches the commands.
func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.Hidden && (c.Short == "" || c.Example == "") {
			t.Errorf("%s has no description or no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&cli.App{}))
	want, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, errors bytes.Buffer
	if code := execute([]string{"docs"}, &out, &errors); code != cli.ExitDone {
		t.Fatal(errors.String())
	}
	if out.String() != string(want) {
		t.Error("docs/cli.md is out of date: make docs")
	}
}

// TestHeadings demands a heading for each flag of a command with more than 12, and that headings name existing flags
// once.
func TestHeadings(t *testing.T) {
	for _, c := range cli.Leaves(newRoot(&cli.App{})) {
		want, got := map[string]bool{}, map[string]bool{}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { want[f.Name] = f.Name != "help" && !f.Hidden })
		delete(want, "help")
		for _, line := range strings.Split(c.Annotations[cli.HeadingsOf], "\n") {
			if _, names, ok := strings.Cut(line, ": "); ok {
				line = names
			}
			for _, name := range strings.Fields(line) {
				if got[name] || !want[name] {
					t.Errorf("%s: the headings name --%s twice, or it is not a flag", c.CommandPath(), name)
				}
				got[name] = true
			}
		}
		if len(want) <= 12 && len(got) == 0 {
			continue
		}
		for name := range want {
			if !got[name] {
				t.Errorf("%s: --%s has no heading", c.CommandPath(), name)
			}
		}
	}
}

// TestRules breaks each rule about flags of each command, which must say so.
func TestRules(t *testing.T) {
	for _, c := range cli.Leaves(newRoot(&cli.App{})) {
		args := strings.Fields(c.CommandPath())[1:]
		for _, models := range [][]string{{"absent.onnx"}, {"absent.onnx", "other.onnx"}, {}} {
			if c.Args == nil || c.Args(c, models) == nil {
				args = append(args, models...)
				break
			}
		}
		give := func(name string) string {
			name, value, valued := strings.Cut(name, "=")
			f := c.Flags().Lookup(name)
			switch {
			case f == nil:
				t.Errorf("%s: a rule names --%s, which is not a flag", c.CommandPath(), name)
				return ""
			case f.Value.Type() == "bool":
				value = strconv.FormatBool(f.DefValue == "false")
			case !valued && strings.ContainsAny(f.DefValue, "0123456789"):
				value = "7"
			case !valued && name == "backend":
				value = "+CPU"
			case !valued:
				value = "x"
			}
			return "--" + name + "=" + value
		}
		for _, r := range cli.RulesOf(c) {
			for _, flag := range r.Flags {
				broken, want := [][]string{{give(flag)}}, "--"+flag+" requires --"
				if !r.Requires {
					broken, want = nil, "cannot be combined with --"+flag
					for _, other := range r.Others {
						broken = append(broken, []string{give(flag), give(other)})
					}
				}
				for _, flags := range broken {
					var out, errors bytes.Buffer
					code := execute(append(slices.Clone(args), flags...), &out, &errors)
					said := strings.Contains(errors.String(), want) ||
						!r.Requires && strings.Contains(errors.String(), " requires --") // which is checked first
					if code != cli.ExitUsage || !said {
						t.Errorf("%s %v: exit code %d, %s", c.CommandPath(), flags, code, &errors)
					}
				}
			}
		}
	}
}
