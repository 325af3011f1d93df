// Package parts writes a part of a model with its inputs and outputs to a folder, for extract and bisect.
package parts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/cut"
)

// The files of a folder that extract writes.
const (
	ModelFile  = "model.onnx"
	GoldenFile = "golden.npz"
)

// Extracted describes the folder that extract writes.
type Extracted struct {
	Schema  int      `json:"schema"`
	Folder  string   `json:"folder"`
	Nodes   int      `json:"nodes"`
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	Cases   int      `json:"cases"`
}

// CutSites cuts out the sites with these ids.
func CutSites(c *cut.Cutter, sites []rewrite.SiteReport, ids []string) (*cut.Part, error) {
	var matches []*patterns.Match
	for _, id := range ids {
		i := slices.IndexFunc(sites, func(s rewrite.SiteReport) bool { return s.ID == id && s.Match != nil })
		if i < 0 {
			return nil, fmt.Errorf("unknown site %q: match --json lists the sites", id)
		}
		matches = append(matches, sites[i].Match)
	}
	return c.Sites(matches...)
}

// WriteCut runs the whole model on cases, and writes the part with its inputs and outputs to a new folder, which
// appears whole. more writes other files to it.
func WriteCut(a *cli.App, b *session.Backend, cut *cut.Part, cases []golden.Case, out string,
	more func(folder string) error,
	beside ...*atomicfile.Prepared) (*Extracted, error) {
	part, err := cut.Model()
	if err != nil {
		return nil, err
	}
	if cases, err = atCut(a, b, cut, cases); err != nil {
		return nil, err
	}
	if err := feeds.InHalf(part, cases); err != nil { // as diff compares
		return nil, err
	}
	err = atomicfile.WriteFolder(out, func(folder string) error {
		if err := onnx.Write(filepath.Join(folder, ModelFile), part); err != nil {
			return err
		}
		if err := golden.SaveNPZ(filepath.Join(folder, GoldenFile), cases); err != nil {
			return err
		}
		return more(folder)
	}, beside...)
	if err != nil {
		return nil, err
	}
	e := &Extracted{Schema: cli.JSONSchema, Folder: out, Nodes: len(part.Graph.Nodes), Cases: len(cases)}
	for _, v := range part.Graph.Inputs {
		e.Inputs = append(e.Inputs, v.Name)
	}
	for _, v := range part.Graph.Outputs {
		e.Outputs = append(e.Outputs, v.Name)
	}
	a.Say("wrote %s: %s, %s, %s, %s", out, cli.Counted(e.Nodes, "node"), cli.Counted(len(e.Inputs), "input"),
		cli.Counted(len(e.Outputs), "output"), cli.Counted(e.Cases, "case"))
	return e, nil
}

// atCut runs the nodes before the end of the cut, and returns the inputs and outputs of the part.
func atCut(a *cli.App, b *session.Backend, cut *cut.Part, cases []golden.Case) (_ []golden.Case, err error) {
	whole, err := cut.Whole()
	if err != nil {
		return nil, err
	}
	folder, err := atomicfile.MkdirTemp("", "mojo-patch-extract-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(folder)) }()
	whole.Path = filepath.Join(folder, ModelFile)
	if !b.Evaluator {
		if err := onnx.Write(whole.Path, whole); err != nil {
			return nil, err
		}
	}
	r, what, err := b.Open(a, whole)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ran := make([]golden.Case, len(cases))
	for i, c := range cases { // the part may need fewer inputs than the model
		for _, v := range whole.Graph.Inputs {
			if t := c.Input(v.Name); t != nil {
				ran[i].Inputs = append(ran[i].Inputs, t)
			}
		}
	}
	if _, err := feeds.RunCases(a, r, ran, 1); err != nil {
		return nil, cli.Failed(err)
	}
	a.Detail("the whole model was run in %s", what)
	var kept []golden.Case
	for i, c := range ran {
		var k golden.Case
		for _, p := range cut.Inputs {
			t := c.Output(p.Value.Name)
			if t == nil {
				t = cases[i].Input(p.Value.Name)
			}
			if t == nil {
				return nil, fmt.Errorf("case %d has no %q", i, p.Value.Name)
			}
			k.Inputs = append(k.Inputs, t)
		}
		for _, v := range cut.Outputs {
			k.Outputs = append(k.Outputs, c.Output(v.Name))
		}
		kept = append(kept, k)
	}
	return kept, nil
}
