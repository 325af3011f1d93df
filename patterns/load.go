package patterns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// extension is the suffix of pattern files in folders.
const extension = ".pat"

// MaxFile is the maximum size of a pattern file in bytes; the built-in files have 15,000 in total.
const MaxFile = 1 << 20

// Load reads pattern files, or the .pat files of folders in the order of their names. It returns the set of their
// patterns followed by the built-in ones, whose views they may use. Names of patterns, views and functions must differ
// between files, and from the built-in ones. (One file may write a pattern in several ways under one name.) Mistakes in
// a file are errors of type *Error, with line and column.
func Load(paths ...string) (*Set, error) {
	files, err := Files(paths...)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(files))
	for i, file := range files {
		src, err := regular.ReadFile(file, MaxFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the patterns: %w", err)
		}
		texts[i] = string(src)
	}
	return Builtin().after(files, texts)
}

// With returns the set with the patterns of a file's text before its own, as Load puts a file before the built-in
// patterns.
func (s *Set) With(file, text string) (*Set, error) { return s.after([]string{file}, []string{text}) }

// after returns the patterns of files followed by those of the set.
func (base *Set) after(files, texts []string) (*Set, error) {
	s := NewSet()
	s.scope, s.added = base.scope.Clone(), base.added
	taken := map[string]*Pattern{}
	for _, p := range base.Patterns {
		taken[p.Name] = p
	}
	for i, file := range files {
		before := len(s.Patterns)
		if err := s.Add(file, texts[i]); err != nil {
			return nil, err
		}
		for _, p := range s.Patterns[before:] {
			if old := taken[p.Name]; old != nil && old.Pos.File != file {
				return nil, &notation.Error{Pos: p.Pos,
					Msg: fmt.Sprintf("pattern %s is defined already, at %s", p.Name, old.Pos)}
			}
			taken[p.Name] = p
		}
	}
	s.texts = append(s.texts, base.texts...)
	for _, p := range base.Patterns {
		s.addFrom(base, p)
	}
	return s, nil
}

// Files lists the pattern files at paths, including those in folders. It returns an error if a path cannot be read or a
// folder has no pattern files.
func Files(paths ...string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the patterns: %w", err)
		}
		list := []string{path}
		if info.IsDir() {
			if list, err = inFolder(path); err != nil {
				return nil, err
			}
		}
		for _, file := range list {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
				files = append(files, clean)
			}
		}
	}
	return files, nil
}

func inFolder(path string) ([]string, error) {
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("cannot read the patterns: %w", err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), extension) && !e.IsDir() {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s contains no pattern files: their names end in %s", path, extension)
	}
	return files, nil
}

// Defines reports whether a pattern file of the set defines the function.
func (s *Set) Defines(domain, name string) bool { return s.scope.Defines(domain, name) }
