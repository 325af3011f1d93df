package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// row maps each mode to its result for a model: [exit code:]files:report.
type row map[string]string

// table maps the names of models to rows.
type table map[string]row

// readTable reads the output of write: a line of the names of the modes, and a line for each model.
func readTable(file string) (table, error) {
	t := table{}
	f, err := os.Open(file)
	if err != nil {
		return t, err
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case names == nil:
			names = fields[1:]
		case len(fields) != len(names)+1:
			return t, fmt.Errorf("%s: the line of %s has %d digests instead of %d", file, fields[0], len(fields)-1,
				len(names))
		default:
			r := row{}
			for i, n := range names {
				r[n] = fields[i+1]
			}
			t[fields[0]] = r
		}
	}
	return t, lines.Err()
}

func (t table) write(file string) error {
	var b strings.Builder
	b.WriteString("# make freeze writes and compares this table: [exit code:]digest of files:digest of the report\n")
	b.WriteString("model")
	for _, m := range modes() {
		b.WriteString(" " + m.name)
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		b.WriteString("\n" + name)
		for _, m := range modes() {
			cell := t[name][m.name]
			if cell == "" {
				cell = "-"
			}
			b.WriteString(" " + cell)
		}
	}
	return os.WriteFile(file, []byte(b.String()+"\n"), 0o644)
}

// compare prints the runs that differ from the recorded ones, and reports whether all are equal.
func (t table) compare(recorded table) bool {
	changed, runs := 0, 0
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if recorded[name] == nil {
			fmt.Printf("%s: not recorded\n", name)
			changed++
			continue
		}
		for _, m := range modes() {
			runs++
			was, is := recorded[name][m.name], t[name][m.name]
			if was == is {
				continue
			}
			changed++
			fmt.Printf("%s %s: %s\n", name, m.name, difference(was, is))
		}
	}
	missing := 0
	for name := range recorded {
		if t[name] == nil {
			missing++
		}
	}
	fmt.Printf("%d models, %d runs, %d differences; %d recorded models were not run\n", len(t), runs, changed, missing)
	return changed == 0
}

// difference describes the change between two cells.
func difference(was, is string) string {
	split := func(cell string) (code, files, report string) {
		parts := strings.Split(cell, ":")
		if len(parts) == 2 {
			parts = append([]string{"0"}, parts...)
		}
		if len(parts) != 3 {
			return "?", "?", "?"
		}
		return parts[0], parts[1], parts[2]
	}
	wasCode, wasFiles, wasReport := split(was)
	isCode, isFiles, isReport := split(is)
	var parts []string
	if wasCode != isCode {
		parts = append(parts, fmt.Sprintf("exit code %s, was %s", isCode, wasCode))
	}
	if wasFiles != isFiles {
		parts = append(parts, "other output")
	}
	if wasReport != isReport {
		parts = append(parts, "other report")
	}
	return strings.Join(parts, ", ")
}
