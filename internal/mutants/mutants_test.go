package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const example = `package p

func f(a []int, s string) bool {
	if len(a) < 2 {
		return false
	}
	for i := range a {
		if !g(a[i]) && s != "x" {
			continue
		}
		a[0] = i + 1
		h("a" + s)
	}
	return true
}
`

// TestMutants changes each place of a function in every way, except strings.
func TestMutants(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(example), 0o666); err != nil {
		t.Fatal(err)
	}
	found, err := mutants(folder, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, m.Kind+": "+m.Old+" -> "+m.New)
	}
	slices.Sort(got)
	want := []string{
		`arithmetic: + -> -`,
		`comparison: != -> ==`,
		`comparison: < -> <=`,
		`comparison: < -> >=`,
		`guard: !g(a[i]) && s != "x" -> false && (!g(a[i]) && s != "x")`,
		`guard: len(a) < 2 -> false && (len(a) < 2)`,
		`logic: ! -> `,
		`logic: && -> ||`,
		`loop: continue -> break`,
		`number: 0 -> 1`,
		`number: 1 -> 2`,
		`number: 2 -> 3`,
		`result: false -> true`,
		`result: true -> false`,
		`statement: a[0] = i + 1 -> `,
		`statement: h("a" + s) -> `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCountedPlaces: a mutant runs if the place at which coverage counts its code does.
func TestCountedPlaces(t *testing.T) {
	const source = `package p

func f(a, b []int) bool {
	ok := any(a, func(x int) bool { return x > 1 }) && len(b) > 2 &&
		any(b, func(x int) bool { return x > 3 }) && len(b) > 4
	if !any(a, func(x int) bool {
		return any(a, func(y int) bool { return y > 5 }) || x > 6
	}) && len(a) > 7 {
		ok = len(a) > 8
	}
	switch {
	case len(b) > 9:
		return ok
	}
	return len(b) > 10
}
`
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	found, err := mutants(folder, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]int{}
	for _, m := range found {
		if m.Kind == "number" {
			got[m.Old] = m.block
		}
	}
	want := map[string][2]int{"1": {4, 45}, "2": {4, 2}, "3": {5, 40}, "4": {4, 2}, "5": {7, 47}, "6": {7, 3},
		"7": {6, 2}, "8": {9, 17}, "9": {11, 2}, "10": {15, 18}}
	if !maps.Equal(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
}

// TestIdsStay changes another function and the seed: the mutants of this one keep their ids.
func TestIdsStay(t *testing.T) {
	folder := t.TempDir()
	ids := func(source string, seed int64) []string {
		if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(source), 0o666); err != nil {
			t.Fatal(err)
		}
		found, err := mutants(folder, seed)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, m := range found {
			if m.Func == "f" {
				list = append(list, m.ID)
			}
		}
		return list
	}
	before := ids(example, 1)
	after := ids(strings.Replace(example, "func f", "func e(n int) bool { return n > 1 }\n\nfunc f", 1), 2)
	if len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("ids %v became %v", before, after)
	}
}

// TestDraws draws from each named package, and refuses a folder without mutants.
func TestDraws(t *testing.T) {
	all := []mutant{{ID: "1", File: "a/b/x.go"}, {ID: "2", File: "a/x.go"}, {ID: "3", File: "a/y.go"}}
	draws, err := drawsOf(all, "a,a/b")
	if err != nil || len(draws) != 2 || len(draws[0]) != 2 || draws[0][0].ID != "2" || draws[1][0].ID != "1" {
		t.Errorf("%v, %v", draws, err)
	}
	if draws, err = drawsOf(all, ""); err != nil || len(draws[0]) != 3 {
		t.Errorf("without packages: %v, %v", draws, err)
	}
	if _, err := drawsOf(all, "a,b"); err == nil {
		t.Error("b has no mutants")
	}
}

// TestBatches demands that a package's own tests run before others, and slow ones separately at the end.
func TestBatches(t *testing.T) {
	tests := []test{
		{"a", "Slow", profile{Seconds: 9}}, {"a", "Other", profile{Seconds: 1}}, {"a/b", "Own", profile{Seconds: 2}},
		{"a/b", "Slower", profile{Seconds: 10}}, {"a/b", "Quick", profile{}},
	}
	var got []string
	for _, batch := range batches(tests, "a/b") {
		var names []string
		for _, t := range batch {
			names = append(names, t.name)
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := []string{"Own Quick", "Other", "Slow", "Slower"}; !slices.Equal(got, want) {
		t.Errorf("batches %q, want %q", got, want)
	}
}

// TestRuns queries a profile about places before, in and after a block, and about unknown files.
func TestRuns(t *testing.T) {
	p := profile{Files: map[string]covered{"a.go": {"same", [][4]int{{3, 10, 5, 2}}}}}
	for _, c := range []struct {
		file, hash string
		line, col  int
		want       bool
	}{
		{"a.go", "same", 3, 9, false},
		{"a.go", "same", 3, 10, true},
		{"a.go", "same", 4, 1, true},
		{"a.go", "same", 5, 3, false},
		{"a.go", "edited", 9, 1, true},
		{"b.go", "same", 4, 1, false},
	} {
		if got := p.runs(mutant{File: c.file, block: [2]int{c.line, c.col}}, c.hash); got != c.want {
			t.Errorf("%s %s %d:%d: %t", c.file, c.hash, c.line, c.col, got)
		}
	}
}

// TestReach leaves out tests of other packages with -own.
func TestReach(t *testing.T) {
	runs := profile{Seconds: 1, Files: map[string]covered{"a/b.go": {"same", [][4]int{{1, 1, 9, 9}}}}}
	g := group{name: "a"}
	m := mutant{File: "a/b.go", block: [2]int{2, 2}}
	for own, want := range map[bool]string{false: "Own Above", true: "Own"} {
		r := &runner{own: own, tests: map[string][]test{"a": {{"a", "Own", runs}, {"a/c", "Above", runs},
			{"a", "Elsewhere", profile{}}}}}
		var got []string
		for _, t := range r.reach(g, m, "same") {
			got = append(got, t.name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("own %v: %q, want %s", own, got, want)
		}
	}
}

// TestFaultsArePlanted finds the text of each fault in the kernels, so that whoever changes the text updates the fault.
func TestFaultsArePlanted(t *testing.T) {
	if err := plant(filepath.Join("..", "..", "fused"), t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestHarmlessAreThere finds the mutant of each line of harmless.txt.
func TestHarmlessAreThere(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	groups, err := findGroups(true)
	if err != nil {
		t.Fatal(err)
	}
	all, err := everyMutant(groups, 1)
	if err != nil {
		t.Fatal(err)
	}
	for id, reason := range harmlessReasons() {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.ID == id }) {
			t.Errorf("no mutant %s (%s): its code has changed", id, reason)
		}
	}
}
