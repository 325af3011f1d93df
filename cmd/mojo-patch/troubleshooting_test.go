package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshootingDocument runs the commands of docs/troubleshooting.md, and finds the messages that it explains in
// the code: whoever rewords a message must update the document.
func TestTroubleshootingDocument(t *testing.T) {
	const path = "../../docs/troubleshooting.md"
	if commands, _ := runDocument(t, path); commands == 0 {
		t.Error("no command in the document")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	code, messages := goCode(t), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			messages++
			if !isPrinted(code, span[1]) {
				t.Errorf("no code prints %q", span[1])
			}
		}
	}
	if messages < 20 {
		t.Errorf("%d messages in the document", messages)
	}
	for _, gone := range []string{"no such message …", "the type of … is unknowable"} {
		if isPrinted(code, gone) {
			t.Errorf("%q is found", gone)
		}
	}
}

// goCode returns the program's Go files, with concatenated string literals joined.
func goCode(t *testing.T) string {
	var b strings.Builder
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := e.Name(); e.IsDir() && (name == "build" || name == "bench" || name == ".git") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(b.String(), "")
}

// isPrinted reports whether one format in the code has all parts of a message between its ellipses, in order.
func isPrinted(code, message string) bool {
	parts := strings.Split(message, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`"[^"\n]*` + strings.Join(parts, `[^"\n]+?`)).MatchString(code)
}
