package compare

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// sensitivity compares how far an output moves when the weights and inputs of its model move by one unit in the last
// place with how far the other model's output is off.
type sensitivity struct {
	Case   int    `json:"case"`
	Output string `json:"output"`
	Other  Spread `json:"other"`
	Nudged Spread `json:"nudged"` // the furthest of the runs
	Within bool   `json:"within"`
	Passed bool   `json:"passed"` // by the tolerance
}

// Spread is the distance of an output from the first model's.
type Spread struct {
	MaxAbs     golden.Number `json:"max_abs"`
	RelativeL2 golden.Number `json:"relative_l2"`
	// Top1 is only for logits: the share of positions with the same most probable class.
	Top1 *float64 `json:"top1,omitempty"`
}

// Add widens the spread by another output.
func (s *Spread) Add(o golden.Stats, top1 *float64) {
	s.MaxAbs, s.RelativeL2 = max(s.MaxAbs, o.MaxAbs), max(s.RelativeL2, o.RelativeL2)
	if top1 != nil && (s.Top1 == nil || *top1 < *s.Top1) {
		s.Top1 = top1
	}
}

// String returns the spread for people.
func (s Spread) String() string {
	text := fmt.Sprintf("%.3g (%.3g)", s.MaxAbs, s.RelativeL2)
	if s.Top1 != nil {
		text += fmt.Sprintf(", top-1 %.4g%%", 100**s.Top1)
	}
	return text
}

// Top1 returns the share of positions with the same most probable class, or nil if an output does not hold logits.
func (k *Criteria) Top1(got, want *onnx.Tensor) *float64 {
	if !k.areLogits(want) {
		return nil
	}
	l, err := golden.CompareLogits(got, want)
	if err != nil {
		return nil
	}
	return &l.Top1
}

// Weigh compares how far outputs are off with how far the first model's outputs move when nudged. The comparison passes
// if all outputs out of tolerance are within that distance.
func (r *Comparison) Weigh(moved []map[string]Spread) {
	passed := true
	for i, c := range r.Cases {
		passed = passed && c.Error == ""
		for _, s := range c.Outputs {
			other := Spread{}
			var top1 *float64
			if s.Logits != nil {
				top1 = &s.Logits.Top1
			}
			other.Add(s, top1)
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

func (r *Comparison) writeSensitivity(a *cli.App) {
	if r.Sensitivity == nil {
		return
	}
	a.Say("compared with %s with weights and inputs changed by one unit in the last place, the furthest of %d runs; "+
		"max abs (relative L2)", r.Against, NudgedRuns)
	t := cli.NewTable(">case", "output", ">"+r.Model, ">changed by itself", "")
	for _, s := range r.Sensitivity {
		if s.Passed && r.WithinOwn && !a.Verbose { // no need to explain
			continue
		}
		verdict := "within"
		if !s.Within {
			verdict = "beyond"
		}
		t.Add(s.Case, s.Output, s.Other, s.Nudged, verdict)
	}
	t.Write(a.Human())
}

const (
	// NudgedRuns is the number of runs of a nudged model.
	NudgedRuns = 3
	// nudgedFactor is how much further off than the furthest nudged run another model may be: a few runs do not show
	// the maximum.
	nudgedFactor = 2
)
