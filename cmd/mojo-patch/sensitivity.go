package main

import (
	"fmt"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
)

const (
	// nudgedRuns is the number of runs of a nudged model.
	nudgedRuns = 3
	// nudgedFactor is how much further off than the furthest nudged run another model may be: a few runs do not show
	// the maximum.
	nudgedFactor = 2
)

// sensitivity compares how far an output moves when the weights and inputs of its model move by one unit in the last
// place with how far the other model's output is off.
type sensitivity struct {
	Case   int    `json:"case"`
	Output string `json:"output"`
	Other  spread `json:"other"`
	Nudged spread `json:"nudged"` // the furthest of the runs
	Within bool   `json:"within"`
	Passed bool   `json:"passed"` // by the tolerance
}

// spread is the distance of an output from the first model's.
type spread struct {
	MaxAbs     golden.Number `json:"max_abs"`
	RelativeL2 golden.Number `json:"relative_l2"`
	// Top1 is only for logits: the share of positions with the same most probable class.
	Top1 *float64 `json:"top1,omitempty"`
}

func (s *spread) add(o golden.Stats, top1 *float64) {
	s.MaxAbs, s.RelativeL2 = max(s.MaxAbs, o.MaxAbs), max(s.RelativeL2, o.RelativeL2)
	if top1 != nil && (s.Top1 == nil || *top1 < *s.Top1) {
		s.Top1 = top1
	}
}

func (s spread) String() string {
	text := fmt.Sprintf("%.3g (%.3g)", s.MaxAbs, s.RelativeL2)
	if s.Top1 != nil {
		text += fmt.Sprintf(", top-1 %.4g%%", 100**s.Top1)
	}
	return text
}

// nudged runs the first model with weights and inputs that are one unit in the last place off. It returns how far the
// outputs of each case move.
func (f *diffFlags) nudged(a *app, path string, want []golden.Case) (moved []map[string]spread, err error) {
	moved = make([]map[string]spread, len(want))
	for i := range moved {
		moved[i] = map[string]spread{}
	}
	dir, err := atomicfile.MkdirTemp("", "mojo-patch-")
	if err != nil {
		return nil, err
	}
	defer atomicfile.Remove(dir)
	for seed := range uint64(nudgedRuns) {
		got, err := f.nudgedRun(a, path, filepath.Join(dir, fmt.Sprintf("nudged-%d.onnx", seed)), 1+seed, want)
		if err != nil {
			return nil, err
		}
		for i, c := range got {
			stats, err := golden.CompareAll(c.Outputs, want[i].Outputs, f.criteria.tolerances)
			if err != nil {
				return nil, fmt.Errorf("%s with weights changed by one unit in the last place: %w", path, err)
			}
			for _, s := range stats {
				all := moved[i][s.Name]
				all.add(s, f.criteria.top1(c.Output(s.Name), want[i].Output(s.Name)))
				moved[i][s.Name] = all
			}
		}
	}
	return moved, nil
}

func (f *diffFlags) nudgedRun(a *app, from, to string, seed uint64, want []golden.Case) ([]golden.Case, error) {
	if err := writeNudged(a, from, to, seed); err != nil {
		return nil, err
	}
	m, err := a.read(to)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	quiet := *a
	quiet.quiet = true
	r, _, err := f.sides.sides[0].open(&quiet, m)
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
	if _, err := runCases(&quiet, r, cases, 1); err != nil {
		return nil, failed(err)
	}
	return cases, inHalf(m, cases)
}

// writeNudged writes a model whose weights are moved by one unit in the last place.
func writeNudged(a *app, from, to string, seed uint64) error {
	m, err := a.read(from)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := golden.Nudge(m, seed); err != nil {
		return err
	}
	return onnx.Write(to, m, onnx.ExternalDataOver(1<<20))
}

// top1 returns the share of positions with the same most probable class, or nil if an output does not hold logits.
func (k *criteria) top1(got, want *onnx.Tensor) *float64 {
	if !k.areLogits(want) {
		return nil
	}
	l, err := golden.CompareLogits(got, want)
	if err != nil {
		return nil
	}
	return &l.Top1
}

// weigh compares how far outputs are off with how far the first model's outputs move when nudged. The comparison passes
// if all outputs out of tolerance are within that distance.
func (r *comparison) weigh(moved []map[string]spread) {
	passed := true
	for i, c := range r.Cases {
		passed = passed && c.Error == ""
		for _, s := range c.Outputs {
			other := spread{}
			var top1 *float64
			if s.Logits != nil {
				top1 = &s.Logits.Top1
			}
			other.add(s, top1)
			nudged := moved[i][s.Name]
			within := s.Got == s.Want && other.MaxAbs <= nudgedFactor*nudged.MaxAbs &&
				other.RelativeL2 <= nudgedFactor*nudged.RelativeL2
			r.Sensitivity = append(r.Sensitivity, sensitivity{c.Case, s.Name, other, nudged, within, s.Passed})
			passed = passed && (s.Passed || within)
		}
	}
	r.WithinOwn = passed && !r.Passed
	r.Passed = r.Passed || passed
}

func (r *comparison) writeSensitivity(a *app) {
	if r.Sensitivity == nil {
		return
	}
	a.say("compared with %s with weights and inputs changed by one unit in the last place, the furthest of %d runs; "+
		"max abs (relative L2)", r.Against, nudgedRuns)
	t := newTable(">case", "output", ">"+r.Model, ">changed by itself", "")
	for _, s := range r.Sensitivity {
		if s.Passed && r.WithinOwn && !a.verbose { // no need to explain
			continue
		}
		verdict := "within"
		if !s.Within {
			verdict = "beyond"
		}
		t.add(s.Case, s.Output, s.Other, s.Nudged, verdict)
	}
	t.write(a.human())
}
