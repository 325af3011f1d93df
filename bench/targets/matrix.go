// Command targets patches a folder of exports, DIR, for every target, and writes in Markdown which sites each target
// took, by pattern and type, with the reasons for open sites. For targets that need static shapes, it uses the
// shapes of the first recorded case.
//
//	go run ./bench/targets DIR
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: targets DIR")
		os.Exit(2)
	}
	m := &matrix{cells: map[key]*cell{}, reasons: map[string]int{}}
	if err := m.fill(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "targets:", err)
		os.Exit(1)
	}
	m.write(os.Stdout)
}

// key is a place in the matrix.
type key struct{ dtype, pattern, target string }

// cell counts the sites of one pattern and type.
type cell struct {
	taken, found int
	open         []int // numbers of the reasons
}

type matrix struct {
	cells    map[key]*cell
	dtypes   []string
	patterns []string
	models   int
	reasons  map[string]int // numbered from 1
	listed   []string
}

func (m *matrix) fill(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s holds no .onnx files (%v)", dir, err)
	}
	for _, file := range files {
		for _, t := range target.All() {
			r, err := apply(file, t)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", file, t.Name, err)
			}
			m.add(t.Name, r)
		}
		m.models++
		fmt.Fprintln(os.Stderr, file)
	}
	return nil
}

func apply(file string, t *target.Target) (*rewrite.Report, error) {
	model, err := onnx.Read(file)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	shapes := &target.Shapes{}
	if t.Static {
		cases, err := golden.Load(strings.TrimSuffix(file, ".onnx")+".npz", model)
		if err != nil {
			return nil, err
		}
		shapes.Inputs = map[string][]int64{}
		for _, in := range cases[0].Inputs {
			shapes.Inputs[in.Name] = in.Dims
		}
	}
	return rewrite.Apply(model, rewrite.Request{Target: t, Shapes: shapes})
}

// add counts the sites of a report that a target decided on.
func (m *matrix) add(target string, r *rewrite.Report) {
	for _, s := range r.Sites {
		if s.Status == rewrite.Missed || len(s.Types) == 0 {
			continue
		}
		k := key{s.Types[0], s.Pattern, target}
		if !slices.Contains(m.dtypes, k.dtype) {
			m.dtypes = append(m.dtypes, k.dtype)
		}
		if !slices.Contains(m.patterns, k.pattern) {
			m.patterns = append(m.patterns, k.pattern)
		}
		c := m.cells[k]
		if c == nil {
			c = &cell{}
			m.cells[k] = c
		}
		c.found++
		if s.Status == rewrite.Fused {
			c.taken++
			continue
		}
		reason := strings.TrimPrefix(s.Reason, "target "+target+": ")
		if m.reasons[reason] == 0 {
			m.listed = append(m.listed, reason)
			m.reasons[reason] = len(m.listed)
		}
		if n := m.reasons[reason]; !slices.Contains(c.open, n) {
			c.open = append(c.open, n)
		}
	}
}

func (m *matrix) write(w io.Writer) {
	slices.Sort(m.patterns)
	fmt.Fprintf(w, "Each cell has the number of sites taken and found in %d models; numbers in brackets are the "+
		"reasons below.\n", m.models)
	for _, dtype := range []string{"float32", "float16", "bfloat16"} {
		fmt.Fprintf(w, "\n| %s |", dtype)
		for _, t := range target.All() {
			fmt.Fprintf(w, " %s |", t.Name)
		}
		fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(target.All())))
		for _, p := range m.patterns {
			var row strings.Builder
			any := false
			for _, t := range target.All() {
				c := m.cells[key{dtype, p, t.Name}]
				if c == nil {
					row.WriteString(" - |")
					continue
				}
				any = true
				fmt.Fprintf(&row, " %d of %d", c.taken, c.found)
				if len(c.open) > 0 {
					slices.Sort(c.open)
					fmt.Fprintf(&row, " %v", c.open)
				}
				row.WriteString(" |")
			}
			if any {
				fmt.Fprintf(w, "| %s |%s\n", p, row.String())
			}
		}
	}
	fmt.Fprintln(w)
	for i, reason := range m.listed {
		fmt.Fprintf(w, "%d. %s\n", i+1, reason)
	}
}
