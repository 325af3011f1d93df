package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
	visit(newRoot(&app{}))
	want, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, errors bytes.Buffer
	if code := run([]string{"docs"}, &out, &errors); code != exitDone {
		t.Fatal(errors.String())
	}
	if out.String() != string(want) {
		t.Error("docs/cli.md is out of date: make docs")
	}
}

func TestTable(t *testing.T) {
	tb := newTable("name", ">count", "")
	tb.add("à", "7", "x")
	tb.add("longer", "12345", "")
	var b strings.Builder
	tb.write(&b)
	want := "  name    count\n  à           7  x\n  longer  12345\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
