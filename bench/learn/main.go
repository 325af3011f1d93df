// Command learn measures the benefit of apply --learn for the models of each folder: how many blocks are fitted, how
// many are learned, how many the patterns learned from the folder's other models find without fits, and how long the
// search for blocks takes in the models that patterns were learned from.
//
//	go run ./bench/learn FOLDER...
//	go run ./bench/learn FOLDER_OF_FOLDERS
//	go run ./bench/learn -composed 40
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/spellings"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// group holds models that may learn from each other.
type group struct {
	name   string
	models []*model
}

type model struct {
	name   string
	open   func() (*onnx.Model, error)
	learnt *rewrite.LearnReport
}

func main() {
	composed := flag.Int("composed", 0, "use this many composed spellings of each kind instead of folders")
	verbose := flag.Bool("v", false, "say which blocks are not learnt, or not found")
	flag.Parse()
	var groups []*group
	for _, folder := range flag.Args() {
		groups = append(groups, ofFolder(folder))
	}
	if *composed > 0 {
		groups = append(groups, ofKinds(*composed)...)
	}
	fmt.Println("| models | with fits | fitted blocks | learnt | patterns | found by patterns of other models " +
		"| refused | finding all blocks, ms | with the patterns, ms |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, g := range groups {
		if err := g.measure(*verbose); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", g.name, err)
			os.Exit(1)
		}
	}
}

func ofFolder(folder string) *group {
	g := &group{name: filepath.Base(folder)}
	paths, _ := filepath.Glob(filepath.Join(folder, "*.onnx")) // the pattern is well-formed
	if len(paths) == 0 {
		paths, _ = filepath.Glob(filepath.Join(folder, "*", "*.onnx"))
	}
	for _, path := range paths {
		g.models = append(g.models, &model{name: filepath.Base(path),
			open: func() (*onnx.Model, error) { return onnx.Read(path) }})
	}
	return g
}

func ofKinds(n int) []*group {
	var groups []*group
	for _, k := range spellings.Composed() {
		g := &group{name: k.Name}
		for seed := range uint64(n) {
			g.models = append(g.models, &model{name: fmt.Sprintf("%s, seed %d", k.Name, seed),
				open: func() (*onnx.Model, error) { return spellings.Spell(k, seed).Model, nil }})
		}
		groups = append(groups, g)
	}
	return groups
}

// plan returns the report of a plan for a model.
func (m *model) plan(r rewrite.Request) (*rewrite.Report, error) {
	opened, err := m.open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	r.AssumeAvailable = true
	p, err := rewrite.New(r)
	if err != nil {
		return nil, err
	}
	plan, err := p.Plan(opened)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	return plan.Report, nil
}

// measure prints the group's row.
func (g *group) measure(verbose bool) error {
	var with []*model
	fitted, learnt, found, refused := 0, 0, 0, 0
	before, after := 0.0, 0.0
	distinct := map[string]bool{}
	for _, m := range g.models {
		r, err := m.plan(rewrite.Request{Learn: true})
		if err != nil {
			return err
		}
		if m.learnt = r.Learnt; m.learnt == nil || m.learnt.Fitted == 0 {
			continue
		}
		with = append(with, m)
		fitted += m.learnt.Fitted
		learnt += m.learnt.Learnt
		if m.learnt.Learnt > 0 {
			before, after = before+m.learnt.FindMS, after+m.learnt.FindLearntMS
		}
		for _, p := range m.learnt.Patterns {
			distinct[unnamed(p)] = true
		}
		if verbose {
			for _, s := range m.learnt.Left {
				fmt.Fprintf(os.Stderr, "%s: %s is not learnt: %s\n", m.name, s.ID, s.Reason)
			}
		}
	}
	for _, m := range with {
		set, err := g.others(m)
		if err != nil {
			return err
		}
		r, err := m.plan(rewrite.Request{Patterns: set})
		if err != nil {
			return err
		}
		n := 0
		for _, s := range r.Sites {
			switch {
			case s.Status == rewrite.Fused:
				n += count(s.Match)
			case s.Status == rewrite.Refused && strings.HasPrefix(s.Pattern, learntName):
				refused++
				if verbose {
					fmt.Fprintf(os.Stderr, "%s: %s is refused: %s\n", m.name, s.ID, s.Reason)
				}
			}
		}
		if found += n; verbose && n < m.learnt.Fitted {
			fmt.Fprintf(os.Stderr, "%s: %d of %d found\n", m.name, n, m.learnt.Fitted)
		}
	}
	fmt.Printf("| %s | %d of %d | %d | %d | %d | %d | %d | %.0f | %.0f |\n", g.name, len(with), len(g.models), fitted,
		learnt, len(distinct), found, refused, before, after)
	return nil
}

// learntName begins the names of patterns from other models.
const learntName = "Learnt_"

// unnamed returns a pattern's text without its name.
func unnamed(p rewrite.LearntPattern) string {
	return strings.TrimPrefix(p.Text, "pattern "+p.Name)
}

// others returns a set of the patterns learned from other models, followed by the built-in patterns without fits.
func (g *group) others(than *model) (*patterns.Set, error) {
	var texts []string
	for _, m := range g.models {
		if m == than || m.learnt == nil {
			continue
		}
		for _, p := range m.learnt.Patterns {
			if text := unnamed(p); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	slices.SortStableFunc(texts, func(a, b string) int { return len(b) - len(a) })
	var file strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&file, "pattern %s%d%s", learntName, i, text)
	}
	set, err := patterns.Builtin().With("learnt", file.String())
	if err != nil {
		return nil, err
	}
	return set.Select(func(p *patterns.Pattern) bool { return !strings.HasPrefix(p.Name, "fit:") }), nil
}

// count counts the matches of learned patterns, including parts of a match.
func count(m *patterns.Match) int {
	if strings.HasPrefix(m.Pattern, learntName) {
		return 1
	}
	n := 0
	for _, p := range m.Parts {
		n += count(p)
	}
	return n
}
