// Command prose finds phrases that make comments, messages and documents hard to read:
//
//	go run ./internal/prose [-v] [FILE...]
//
// It reads all tracked files, or the named ones, and prints how many lines of each kind of text have a phrase of the
// list, and with -v each of them with a better way to say it. It exits with 1 if a kind is over its limit.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rule is a phrase and better words for it.
type rule struct {
	phrase  *regexp.Regexp
	instead string
}

// rules lists phrases that are rare in prose by native writers. Each can be right English, so that kinds have limits.
var rules = []rule{
	{phrase(`what\b(?: [^t]| t[^o])`), `name the thing: "the inputs", not "what it reads"`},
	{phrase(`where (it|they|none|there|that|this|one|no|its|an?|the)\b`), `"if" or "when", unless a place is meant`},
	{phrase(`(of those|those of|that of|of its own|of their own|the ones? of)\b`), "repeat the noun"},
	{phrase(`(none|nobody|somebody)\b`), "name the subject"},
	{phrase(`stands?( [^f]|\.|,|:|$)`), `"is" or "is in"`},
	{phrase(`gives?\b`), `"returns", or another verb`},
	{phrase(`(is|are|was|were|be) no [a-z]+`), `"is not a"`},
	{phrase(`[a-z]+ alone\b`), `"only"`},
	{phrase(`in (the )?places? of\b`), `"instead of"`},
	{phrase(`but for\b`), `"except"`},
	{phrase(`(quanti|recogni|normali|optimi|initiali|summari)s(e|ed|es|ing|ation)\b|behaviour|licence|colour`),
		"American spelling"},
}

func phrase(text string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + text + `)`) }

// limits are the greatest shares of lines with a phrase, in percent, by kind.
var limits = map[string]float64{
	"Go comments": 5, "messages": 0, "C++ comments": 5, "Python comments": 5, "documents": 5,
}

// values are the value none of a flag or an attribute, which is a word of the notation.
var values = regexp.MustCompile(`(=|--[a-z]+ |or )none\b|\bnone( or\b|[,:])|tmpfs .* none`)

// line is a line of text that people read.
type line struct {
	kind, text string
	number     int
}

func main() {
	verbose := flag.Bool("v", false, "print each line that has a phrase")
	flag.Parse()
	files := flag.Args()
	if len(files) == 0 {
		list, err := exec.Command("git", "ls-files", "-z").Output()
		if err != nil {
			fail(fmt.Errorf("list the tracked files: %w", err))
		}
		files = strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
	}
	lines, found := map[string]int{}, map[string]int{}
	for _, name := range files {
		list, err := read(name)
		if err != nil {
			fail(err)
		}
		for _, l := range list {
			lines[l.kind]++
			first := true
			for _, r := range rules {
				at := r.phrase.FindString(l.text)
				if at == "" {
					continue
				}
				if first {
					found[l.kind]++
					first = false
				}
				if *verbose {
					fmt.Printf("%s:%d: %q: %s\n", name, l.number, at, r.instead)
				}
			}
		}
	}
	over := false
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		share := 100 * float64(found[kind]) / float64(lines[kind])
		fmt.Printf("%-16s %5d of %5d lines have a phrase: %.1f %%, at most %g %%\n", kind,
			found[kind], lines[kind], share, limits[kind])
		over = over || share > limits[kind]
	}
	if over {
		fail(errors.New("write them in plain English (-v prints each, with a better way to say it)"))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "prose:", err)
	os.Exit(1)
}

// read returns the lines of a file that people read, nil if it has none or was generated.
func read(name string) ([]line, error) {
	ext := filepath.Ext(name)
	if !slices.Contains([]string{".go", ".cc", ".h", ".cu", ".cuh", ".py", ".md"}, ext) ||
		strings.Contains(name, "third_party/") || strings.Contains(name, "testdata/") {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	head, _, _ := bytes.Cut(data, []byte("\n\n"))
	switch {
	case bytes.Contains(head, []byte("DO NOT EDIT")):
		return nil, nil
	case ext == ".go":
		return readGo(name, data)
	case ext == ".md":
		return readDocument(data), nil
	case ext == ".py":
		return readComments("Python comments", "# ", data), nil
	}
	return readComments("C++ comments", "// ", data), nil
}

// readGo returns the comments of a Go file and, if it is not a test, its messages: literals of several words.
func readGo(name string, data []byte) (list []line, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, data, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text, ok := strings.CutPrefix(c.Text, "// "); ok {
				list = append(list, line{"Go comments", text, fset.Position(c.Pos()).Line})
			}
		}
	}
	if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/prose/") { // the rules quote phrases
		return list, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil || strings.Count(text, " ") < 2 {
				return true
			}
			for i, part := range strings.Split(values.ReplaceAllString(text, ""), "\n") {
				list = append(list, line{"messages", part, fset.Position(n.Pos()).Line + i})
			}
		}
		return true
	})
	return list, nil
}

// readComments returns the comments of a file that begin with a sign.
func readComments(kind, sign string, data []byte) (list []line) {
	s := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; s.Scan(); n++ {
		code, text, ok := strings.Cut(s.Text(), sign)
		if ok && (strings.TrimSpace(code) == "" || strings.HasSuffix(code, "  ")) {
			list = append(list, line{kind, text, n})
		}
	}
	return list
}

// readDocument returns the prose of a Markdown file, without blocks of code.
func readDocument(data []byte) (list []line) {
	s := bufio.NewScanner(bytes.NewReader(data))
	code := false
	for n := 1; s.Scan(); n++ {
		text := s.Text()
		if strings.HasPrefix(strings.TrimSpace(text), "```") {
			code = !code
			continue
		}
		if !code && strings.TrimSpace(text) != "" {
			list = append(list, line{"documents", text, n})
		}
	}
	return list
}
