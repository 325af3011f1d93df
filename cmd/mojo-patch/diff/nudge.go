package diff

import (
	"fmt"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// nudged runs the first model with weights and inputs that are one unit in the last place off. It returns how far the
// outputs of each case move.
func (f *options) nudged(a *cli.App, path string, want []golden.Case) (moved []map[string]compare.Spread, err error) {
	moved = make([]map[string]compare.Spread, len(want))
	for i := range moved {
		moved[i] = map[string]compare.Spread{}
	}
	dir, err := atomicfile.MkdirTemp("", "mojo-patch-")
	if err != nil {
		return nil, err
	}
	defer atomicfile.Remove(dir)
	for seed := range uint64(compare.NudgedRuns) {
		got, err := f.nudgedRun(a, path, filepath.Join(dir, fmt.Sprintf("nudged-%d.onnx", seed)), 1+seed, want)
		if err != nil {
			return nil, err
		}
		for i, c := range got {
			stats, err := golden.CompareAll(c.Outputs, want[i].Outputs, f.criteria.Tolerances)
			if err != nil {
				return nil, fmt.Errorf("%s with weights changed by one unit in the last place: %w", path, err)
			}
			for _, s := range stats {
				all := moved[i][s.Name]
				all.Add(s, f.criteria.Top1(c.Output(s.Name), want[i].Output(s.Name)))
				moved[i][s.Name] = all
			}
		}
	}
	return moved, nil
}

func (f *options) nudgedRun(a *cli.App, from, to string, seed uint64, want []golden.Case) ([]golden.Case, error) {
	if err := writeNudged(a, from, to, seed); err != nil {
		return nil, err
	}
	m, err := a.Read(to)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	quiet := *a
	quiet.Quiet = true
	r, _, err := f.sides.Sides[0].Open(&quiet, m)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cases := make([]golden.Case, len(want))
	for i, c := range want {
		cases[i].Follows = c.Follows
		for k, t := range c.Inputs {
			if t, err = golden.Nudged(t, seed<<32+uint64(k)); err != nil {
				return nil, err
			}
			cases[i].Inputs = append(cases[i].Inputs, t)
		}
	}
	if _, err := feeds.RunCases(&quiet, r, cases, 1); err != nil {
		return nil, cli.Failed(err)
	}
	return cases, feeds.InHalf(m, cases)
}

// writeNudged writes a model whose weights are moved by one unit in the last place.
func writeNudged(a *cli.App, from, to string, seed uint64) error {
	m, err := a.Read(from)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := golden.Nudge(m, seed); err != nil {
		return err
	}
	return onnx.Write(to, m, onnx.ExternalDataOver(1<<20))
}
