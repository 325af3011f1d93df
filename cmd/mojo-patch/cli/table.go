package cli

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Table prints rows in columns without lines between them. Columns whose header begins with ">" are right-aligned.
type Table struct{ pretty.Writer }

// NewTable returns a table with these columns. ">" before a name aligns its column right.
func NewTable(header ...string) *Table {
	t := &Table{pretty.NewWriter()}
	style := pretty.StyleDefault
	style.Options = pretty.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "  ", ""
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	row := pretty.Row{}
	var columns []pretty.ColumnConfig
	for i, h := range header {
		name, right := strings.CutPrefix(h, ">")
		if right {
			columns = append(columns,
				pretty.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		row = append(row, name)
	}
	t.SetColumnConfigs(columns)
	if slices.ContainsFunc(row, func(name any) bool { return name != "" }) {
		t.AppendHeader(row)
	}
	return t
}

// Add adds a row.
func (t *Table) Add(cells ...any) { t.AppendRow(cells) }

// Write prints the table, indented by two blanks.
func (t *Table) Write(w io.Writer) {
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// Section prints a title and the table, or nothing if rows is 0.
func (t *Table) Section(w io.Writer, title string, rows int) {
	if rows > 0 {
		fmt.Fprintln(w, title)
		t.Write(w)
	}
}

// Figure formats a number with six digits.
func Figure(n golden.Number) string { return fmt.Sprintf("%.6g", float64(n)) }

// Grouped yields the elements of a list by their keys, in the order in which the keys appear first.
func Grouped[T any](list []T, key func(T) string) iter.Seq2[string, []T] {
	var order []string
	by := map[string][]T{}
	for _, x := range list {
		k := key(x)
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], x)
	}
	return func(yield func(string, []T) bool) {
		for _, k := range order {
			if !yield(k, by[k]) {
				return
			}
		}
	}
}

// Names returns all names if --verbose is given, or else the first ones.
func (a *App) Names(names []string) string {
	if a.Verbose {
		return strings.Join(names, ", ")
	}
	return Shorter(names)
}

// Shorter names the first few of many tensors.
func Shorter(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// DomainName returns the name of an operator domain for people.
func DomainName(d string) string {
	if onnx.IsStandardDomain(d) {
		return "ai.onnx"
	}
	return d
}

// CommonOps is the number of ops that are listed without --verbose.
const CommonOps = 12
