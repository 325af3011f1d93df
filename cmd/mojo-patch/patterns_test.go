package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestPatternsDocument writes the files of docs/patterns.md, runs its commands, and compares their output. A line … in
// the document matches any lines.
func TestPatternsDocument(t *testing.T) {
	if commands, files := runDocument(t, "../../docs/patterns.md"); commands < 4 || files < 6 {
		t.Fatalf("%d commands and %d files in the document", commands, files)
	}
}

// runDocument runs the console blocks of a document, and returns the number of its commands and files.
func runDocument(t *testing.T, path string) (commands, count int) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	models, err := filepath.Abs("../../models")
	if err != nil {
		t.Fatal(err)
	}
	script, files, commands := scriptOf(string(text))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "patterns.txt"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			for name, content := range files {
				if err := os.WriteFile(filepath.Join(e.WorkDir, name), []byte(content), 0o600); err != nil {
					return err
				}
			}
			return os.Symlink(models, filepath.Join(e.WorkDir, "models"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"prints": prints},
	})
	return commands, len(files)
}

// TestPatternsDocumentExamples reads the definitions that docs/patterns.md shows without running them.
func TestPatternsDocumentExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	parsed := 0
	for i, fenced := range strings.Split(string(text), "```") {
		info, block, _ := strings.Cut(fenced, "\n")
		first, _, _ := strings.Cut(block, " ")
		if i%2 == 0 || info != "" || first != "pattern" && first != "view" && first != "function" {
			continue
		}
		parsed++
		if err := patterns.NewSet().Add("docs/patterns.md", block); err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
	}
	if parsed < 3 {
		t.Errorf("%d definitions in the document", parsed)
	}
}

// scriptOf turns the fenced blocks of a document into a script: .pat blocks are copied to files, console blocks run.
func scriptOf(text string) (script string, files map[string]string, commands int) {
	files = map[string]string{}
	add := func(lines []string) string {
		name := fmt.Sprintf("block%d", len(files))
		files[name] = strings.Join(lines, "\n") + "\n"
		return name
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		info, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			continue
		}
		start := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		block := lines[start:i]
		if strings.HasSuffix(info, ".pat") {
			script += fmt.Sprintf("cp %s %s\n", add(block), info)
		}
		for info == "console" && len(block) > 0 {
			end := 1
			for end < len(block) && !strings.HasPrefix(block[end], "$ ") {
				end++
			}
			run, fails := strings.TrimPrefix(block[0], "$ "), ""
			if end > 1 && strings.HasPrefix(block[1], "mojo-patch: ") {
				fails = "! "
			}
			script += fmt.Sprintf("%sexec %s\nprints %s\n", fails, run, add(block[1:end]))
			block = block[end:]
			commands++
		}
	}
	return script, files, commands
}

// prints compares the last program's output with a file: prints FILE.
func prints(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: prints FILE")
	}
	got := strings.Split(strings.TrimRight(ts.ReadFile("stdout")+ts.ReadFile("stderr"), "\n"), "\n")
	want := strings.Split(strings.TrimRight(ts.ReadFile(args[0]), "\n"), "\n")
	if !fitsLines(got, want) {
		ts.Fatalf("it prints\n%s\nthe document says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func fitsLines(got, want []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] != "…":
		return len(got) > 0 && strings.TrimRight(got[0], " ") == want[0] && fitsLines(got[1:], want[1:])
	}
	for i := range len(got) + 1 {
		if fitsLines(got[i:], want[1:]) {
			return true
		}
	}
	return false
}

// TestPatternFiles demands that errors in a file, or between files, have a position.
func TestPatternFiles(t *testing.T) {
	const good = "pattern Mine(x) -> y {\n  y = Neg(Square(x))\n} => Relu(x)\n"
	tests := []struct {
		name  string
		files map[string]string
		want  string // "" when the set is read
	}{
		{"views of the built-in patterns", map[string]string{"a.pat": good}, ""},
		{"several ways", map[string]string{"a.pat": good + good}, ""},
		{"a built-in name", map[string]string{"a.pat": strings.Replace(good, "Mine", "SwiGLU", 1)},
			"a.pat:1:1: pattern SwiGLU is defined already, at glu.pat:"},
		{"two files", map[string]string{"a.pat": good, "b.pat": "\n" + good},
			"b.pat:2:1: pattern Mine is defined already, at "},
		{"a built-in view", map[string]string{"a.pat": "view Square(x) = Mul(x, x)"},
			"a.pat:1:6: view Square is defined already, at views.pat:"},
		{"syntax", map[string]string{"a.pat": "pattern Mine(x) ->\n  {"}, `a.pat:2:3: expected a result, found "{"`},
		{"no files", map[string]string{"a.txt": good}, " contains no pattern files"},
		{"function of the toolkit", map[string]string{"a.pat": "function mojo.F(x) -> y {\n y = Neg(x)\n}"},
			"a.pat:1:10: function mojo.F needs its own domain"},
		{"unknown name in a function", map[string]string{"a.pat": "function my.F(x) -> y {\n y = Neg(z)\n}"},
			"a.pat:2:6: z is not defined before it is used in function my.F"},
		{"call without attribute",
			map[string]string{"a.pat": "function my.F(x) -> y <k> {\n y = Mul(x, k)\n}\npattern P(x) -> y {\n y = " +
				"Neg(x)\n} => my.F(x)"},
			"a.pat:6:6: function my.F needs the attribute k"},
		{"statements in a function", map[string]string{"a.pat": "function my.F(x) -> y {\n y = my.G(x)\n}"},
			"the body of a function calls only standard ops, found my.G"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := &planning.PatternFlag{Paths: []string{dir}}
			set, err := f.Set()
			if tt.want == "" {
				if err != nil || planning.NamesOf(set)[0] != "Mine" || len(planning.NamesOf(set)) < 5 {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
