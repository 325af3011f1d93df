//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// same applies to every bundled model: again to its own output, and under other conditions; and it checks the metadata
// in the output.
func (b *bench) same() ([]*row, error) {
	list, err := b.bundled()
	if err != nil {
		return nil, err
	}
	again := &row{what: "apply to its own output: nothing to fuse, the same bytes"}
	other := &row{what: "the same input, with other GOMAXPROCS, working folder and file names: the same bytes"}
	meta := &row{what: "metadata kept, every fused node says rule, source nodes and version"}
	dir := filepath.Join(b.dir, "same")
	if err := os.MkdirAll(filepath.Join(dir, "elsewhere"), 0o777); err != nil {
		return nil, err
	}
	for _, path := range list {
		name := filepath.Base(path)
		first, second, third := filepath.Join(dir, "first.onnx"), filepath.Join(dir, "second.onnx"),
			filepath.Join(dir, "elsewhere", "third.mojo.onnx")
		if err := b.applies(0, path, first, anywhere...); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		again.check(name, func() error {
			code, said := b.apply("", nil, first, second, append(anywhere, "--json")...)
			var report rewrite.Report
			if err := json.Unmarshal([]byte(said), &report); err != nil || code != 0 {
				return fmt.Errorf("exit code %d: %s", code, said)
			}
			if report.Fused() != 0 || report.Changed {
				return fmt.Errorf("%d sites are fused the second time", report.Fused())
			}
			err := b.applies(3, first, filepath.Join(dir, "none.onnx"), append(anywhere, "--require")...)
			return errors.Join(err, equalFiles(first, second))
		})
		other.check(name, func() error {
			copied := filepath.Join(dir, "elsewhere", "x.onnx")
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(copied, raw, 0o666); err != nil {
				return err
			}
			elsewhere := filepath.Join(dir, "elsewhere")
			code, said := b.apply(elsewhere, []string{"GOMAXPROCS=7"}, "x.onnx", "third.mojo.onnx", anywhere...)
			if code != 0 {
				return fmt.Errorf("exit code %d: %s", code, said)
			}
			return equalFiles(first, third)
		})
		meta.check(name, func() error { return b.metadata(path, dir) })
	}
	return []*row{again, other, meta}, nil
}

func equalFiles(a, b string) error {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		return fmt.Errorf("%s and %s differ (%v, %v)", filepath.Base(a), filepath.Base(b), errX, errY)
	}
	return nil
}

// metadata adds metadata at every place of a model, applies, and looks for them.
func (b *bench) metadata(path, dir string) error {
	marked, out := filepath.Join(dir, "marked.onnx"), filepath.Join(dir, "out.onnx")
	m, err := onnx.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	mark := func(list []onnx.Entry, value string) []onnx.Entry {
		return append(slices.Clone(list), onnx.Entry{Key: "test.mark", Value: value})
	}
	m.IRVersion = max(m.IRVersion, 10)
	m.Metadata, m.Graph.Metadata = mark(m.Metadata, "model"), mark(m.Graph.Metadata, "graph")
	sources := map[string]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			n.Metadata = mark(n.Metadata, n.Name)
			sources[n.Label()] = true
		}
	}
	for _, f := range m.Functions {
		f.Metadata = mark(f.Metadata, f.Name)
	}
	if err := onnx.Write(marked, m); err != nil {
		return err
	}
	if err := b.applies(0, marked, out, anywhere...); err != nil {
		return err
	}
	p, err := onnx.Read(out)
	if err != nil {
		return err
	}
	defer p.Close()
	if entry(p.Metadata, "test.mark") != "model" || entry(p.Graph.Metadata, "test.mark") != "graph" ||
		p.ProducerName != m.ProducerName {
		return fmt.Errorf("metadata of the model or graph are lost")
	}
	for _, f := range m.Functions {
		q := p.Function(f.Domain, f.Name, f.Overload)
		if q == nil || entry(q.Metadata, "test.mark") != f.Name {
			return fmt.Errorf("metadata of function %s are lost", f.Name)
		}
	}
	return fusedMetadata(p, sources)
}

// fusedMetadata checks that every node of a patched model is one of the sources with its mark, or was made by apply.
func fusedMetadata(p *onnx.Model, sources map[string]bool) (err error) {
	visit := func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			rule := entry(n.Metadata, edit.MetaRule)
			var nodes []string
			json.Unmarshal([]byte(entry(n.Metadata, edit.MetaSourceNodes)), &nodes)
			switch {
			case err != nil:
			case rule == "" && n.Domain == "mojo":
				err = fmt.Errorf("node %q names no rule", n.Name)
			case rule == "" && entry(n.Metadata, "test.mark") != n.Name:
				err = fmt.Errorf("node %q has lost its metadata", n.Name)
			case rule == "":
			case len(nodes) == 0 || entry(n.Metadata, edit.MetaVersion) == "":
				err = fmt.Errorf("node %q names %d source nodes and the version %q", n.Name, len(nodes),
					entry(n.Metadata, edit.MetaVersion))
			case slices.ContainsFunc(nodes, func(s string) bool { return !sources[s] }):
				err = fmt.Errorf("node %q names a source node that there is not: %s", n.Name, strings.Join(nodes, ", "))
			}
		}
	}
	p.Graph.Walk(visit)
	for _, f := range p.Functions {
		if f.Domain != "mojo" {
			f.Body.Walk(visit)
		}
	}
	return err
}

func entry(list []onnx.Entry, key string) string {
	if i := slices.IndexFunc(list, func(e onnx.Entry) bool { return e.Key == key }); i >= 0 {
		return list[i].Value
	}
	return ""
}
