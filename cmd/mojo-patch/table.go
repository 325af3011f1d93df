package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// table prints rows in columns without lines between them. Columns whose header begins with ">" are right-aligned.
type table struct{ pretty.Writer }

func newTable(header ...string) *table {
	t := &table{pretty.NewWriter()}
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

func (t *table) add(cells ...any) { t.AppendRow(cells) }

// write prints the table, indented by two blanks.
func (t *table) write(w io.Writer) {
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// section prints a title and the table, or nothing if rows is 0.
func (t *table) section(w io.Writer, title string, rows int) {
	if rows > 0 {
		fmt.Fprintln(w, title)
		t.write(w)
	}
}
