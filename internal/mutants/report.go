package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// tally counts mutants.
type tally struct{ all, killed, harmless int }

// report prints the counts by package and by kind, and writes them with the diff of each survivor.
func report(results []result, name string) error {
	reasons := harmlessReasons()
	packages, kinds, total := map[string]*tally{}, map[string]*tally{}, &tally{}
	var survivors strings.Builder
	open := 0
	for _, r := range results {
		for _, t := range []*tally{entry(packages, path.Dir(r.Mutant.File)), entry(kinds, r.Mutant.Kind), total} {
			t.all++
			if r.By != "" {
				t.killed++
			} else if reasons[r.Mutant.ID] != "" {
				t.harmless++
			}
		}
		if r.By != "" {
			continue
		}
		if reasons[r.Mutant.ID] == "" {
			open++
		}
		diff, err := r.Mutant.diff()
		if err != nil {
			return err
		}
		fmt.Fprintf(&survivors, "\n## %s\n%s\n```diff\n%s```\n", r.Mutant.ID, notice(r, reasons), diff)
	}
	text := table(packages, kinds, map[string]*tally{"all": total})
	fmt.Print(text)
	if err := os.WriteFile(name, []byte("# Mutants\n"+text+survivors.String()), 0o666); err != nil {
		return err
	}
	if open > 0 {
		return fmt.Errorf("%d survivors are not in harmless.txt: see %s", open, name)
	}
	return nil
}

// table formats counts as a Markdown table.
func table(parts ...map[string]*tally) string {
	var text strings.Builder
	text.WriteString("| | mutants | killed | harmless | % killed |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, counts := range parts {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			t := counts[key]
			fmt.Fprintf(&text, "| %s | %d | %d | %d | %d |\n", key, t.all, t.killed, t.harmless, 100*t.killed/t.all)
		}
	}
	return text.String()
}

// entry returns the tally of a key.
func entry(counts map[string]*tally, key string) *tally {
	if counts[key] == nil {
		counts[key] = &tally{}
	}
	return counts[key]
}

func notice(r result, reasons map[string]string) string {
	text := fmt.Sprintf("%s:%d, %s, %s", r.Mutant.File, r.Mutant.Line, r.Mutant.Func, r.Mutant.Kind)
	if r.Reason != "" {
		text += ", " + r.Reason
	}
	if reason := reasons[r.Mutant.ID]; reason != "" {
		text += ": " + reason
	}
	return text
}

// diff returns the change with two lines of context.
func (m mutant) diff() (string, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	first := strings.LastIndexByte(string(source[:m.start]), '\n') + 1
	last := len(source)
	if i := strings.IndexByte(string(source[m.end:]), '\n'); i >= 0 {
		last = m.end + i + 1
	}
	var text strings.Builder
	write := func(mark string, part []string) {
		for _, line := range part {
			text.WriteString(mark + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	lines := func(part []byte) []string { return slices.Collect(strings.Lines(string(part))) }
	before, after := lines(source[:first]), lines(source[last:])
	write(" ", before[max(0, len(before)-2):])
	write("-", lines(source[first:last]))
	write("+", lines(slices.Concat(source[first:m.start], []byte(m.New), source[m.end:last])))
	write(" ", after[:min(2, len(after))])
	return text.String(), nil
}
