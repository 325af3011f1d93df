package cli

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	tb := NewTable("name", ">count", "")
	tb.Add("à", "7", "x")
	tb.Add("longer", "12345", "")
	var b strings.Builder
	tb.Write(&b)
	want := "  name    count\n  à           7  x\n  longer  12345\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestWrapped(t *testing.T) {
	got := wrapped("one two three\nfour five\n\n  a table   stays\nsix", 9)
	if want := "one two\nthree\nfour five\n\n  a table   stays\nsix"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
