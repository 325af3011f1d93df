// Package compare compares outputs for commands: the flags of tolerances and limits, and reports.
package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

// LogitsHelp is the help about logits in the commands that compare outputs.
const LogitsHelp = `Outputs that hold logits (floats whose last axis is the vocabulary, or that are named logits) are
also compared as distributions: the divergence KL(expected || got) in nats, its mean and maximum
over the positions, and the share of positions whose most probable class is the same (a tie counts
as the chance that a random choice among the tied classes agrees).`

// Criteria are the flags that set the tolerances of a comparison.
type Criteria struct {
	LimitFlags
	atol, rtol []string
	logits     []string

	Tolerances golden.Tolerances // from the flags, after Parse
	Vocabulary int64             // 0 when it is not known
}

// LimitFlags limit how far logits may be from another model's.
type LimitFlags struct {
	maxKL, minTop1 float64
	Limits         golden.LogitLimits // from the flags, after Parse
}

// AddTo adds the flags to a command.
func (k *LimitFlags) AddTo(c *cobra.Command) {
	c.Flags().Float64Var(&k.maxKL, "max-kl", 0,
		"fail if the KL divergence of a position is greater, in nats (default: no limit)")
	c.Flags().Float64Var(&k.minTop1, "min-top1", 0,
		"fail if the most probable class agrees at a smaller share of the positions, 0 to 1 (default: no limit)")
}

// Parse checks the limits that were given, and sets Limits.
func (k *LimitFlags) Parse(c *cobra.Command) error {
	if c.Flags().Changed("max-kl") {
		if k.Limits.MaxKL = &k.maxKL; !(k.maxKL >= 0) || math.IsInf(k.maxKL, 1) {
			return fmt.Errorf("--max-kl %g: must be a number of 0 or more", k.maxKL)
		}
	}
	if c.Flags().Changed("min-top1") {
		if k.Limits.MinTop1 = &k.minTop1; !(k.minTop1 >= 0 && k.minTop1 <= 1) {
			return fmt.Errorf("--min-top1 %g: must be a number from 0 to 1", k.minTop1)
		}
	}
	return nil
}

// AddTo adds the flags to a command.
func (k *Criteria) AddTo(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&k.atol, "atol", nil, "[NAME:]VALUE absolute tolerance, of one output or all; repeatable")
	f.StringArrayVar(&k.rtol, "rtol", nil, "[NAME:]VALUE relative tolerance, of one output or all; repeatable")
	k.LimitFlags.AddTo(c)
	f.StringArrayVar(&k.logits, "logits", nil, "output that holds logits, if it is not recognized; repeatable")
}

// Parse checks the flags, and sets Limits and Tolerances.
func (k *Criteria) Parse(c *cobra.Command) error {
	if err := k.LimitFlags.Parse(c); err != nil {
		return err
	}
	var err error
	k.Tolerances, err = golden.ParseTolerances(k.atol, k.rtol)
	return err
}

// Fit returns an error if a flag names an output that is not in names.
func (k *Criteria) Fit(names []string, vocabulary int64) error {
	k.Vocabulary = vocabulary
	for _, name := range k.logits {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--logits %q: unknown output; the outputs are %q", name, names)
		}
	}
	return k.Tolerances.Check(names)
}

// Comparison is the comparison of one model's outputs with another model's, or with recorded ones.
type Comparison struct {
	Model   string     `json:"model"`
	Against string     `json:"against"`
	Backend string     `json:"backend,omitempty"`
	Passed  bool       `json:"passed"`
	Cases   []CaseDiff `json:"cases"`
	// Ties counts the tokens that other experts were chosen for in a tie, if the models agree except for these.
	Ties   int           `json:"router_ties,omitempty"`
	Layers *LayersReport `json:"layers,omitempty"`
	// WithinOwn reports that all outputs out of tolerance are within the first model's own sensitivity.
	WithinOwn   bool          `json:"within_own_sensitivity,omitempty"`
	Sensitivity []sensitivity `json:"sensitivity,omitempty"`
}

// CaseDiff is one case of a comparison. Error says what could not be compared (a shape, a type, an output) and which
// limits of the logits were exceeded.
type CaseDiff struct {
	Case    int            `json:"case"`
	TimeMS  float64        `json:"time_ms,omitempty"`
	Outputs []golden.Stats `json:"outputs"`
	Error   string         `json:"error,omitempty"`
}

// Compare fills in the cases of a comparison and its verdict. times may be nil.
func (k *Criteria) Compare(r *Comparison, got, want []golden.Case, times []float64) error {
	r.Passed = true
	measured := false
	for i := range want {
		stats, err := golden.CompareAll(got[i].Outputs, want[i].Outputs, k.Tolerances)
		d := CaseDiff{Case: i, Outputs: stats}
		if times != nil {
			d.TimeMS = times[i]
		}
		for j := range stats {
			g, w := got[i].Output(stats[j].Name), want[i].Output(stats[j].Name)
			if !k.areLogits(w) {
				continue
			}
			l, e := golden.CompareLogits(g, w)
			if e == nil {
				stats[j].Logits, measured = &l, true
				e = k.Limits.Check(&l)
			}
			if e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", w.Name, e))
			}
		}
		if err != nil {
			d.Error = err.Error()
		}
		r.Passed = r.Passed && err == nil && golden.Passed(stats)
		r.Cases = append(r.Cases, d)
	}
	if k.Limits.Set() && !measured {
		return errors.New("--max-kl and --min-top1 compare logits, but no compared output was recognized as logits: " +
			"name it with --logits")
	}
	return nil
}

func (k *Criteria) areLogits(t *onnx.Tensor) bool {
	return golden.IsLogits(t, k.Vocabulary) || slices.Contains(k.logits, t.Name)
}

// Report prints the comparisons. It returns an error without a message if one failed.
func (k *Criteria) Report(a *cli.App, all []Comparison) error {
	passed := true
	for _, r := range all {
		passed = passed && r.Passed
		r.write(a)
	}
	if err := a.Result(Comparisons{cli.JSONSchema, passed, all}); err != nil {
		return err
	}
	if !passed {
		return cli.Failed(nil)
	}
	return nil
}

func (r *Comparison) write(a *cli.App) {
	in := ""
	if r.Backend != "" {
		in = ", in " + r.Backend
	}
	a.Say("%s against %s%s", r.Model, r.Against, in)
	t := cli.NewTable(">case", "output", "type", "shape", ">max abs", ">max rel", ">ulp of max", ">cosine", ">within",
		"")
	for _, c := range r.Cases {
		for _, s := range c.Outputs {
			t.Add(c.Case, s.Name, s.DataType, s.Shape, fmt.Sprintf("%.3g", s.MaxAbs),
				fmt.Sprintf("%.3g", s.MaxRel), fmt.Sprintf("%.3g", s.MaxULP), fmt.Sprintf("%.7f", s.Cosine),
				fmt.Sprintf("%d/%d", s.Within, s.Elements), a.Verdict(s.Passed, "passed"))
		}
	}
	t.Write(a.Human())
	WriteLogits(a, r.Cases)
	for _, c := range r.Cases {
		if c.Error != "" {
			a.Say("case %d: %s", c.Case, c.Error)
		}
		for _, s := range c.Outputs {
			if !s.Passed || a.Verbose {
				a.Say("case %d: %s", c.Case, s.Summary())
			}
		}
	}
	if r.Layers != nil {
		r.Layers.write(a)
	}
	r.writeSensitivity(a)
	a.Say("%s", a.Verdict(r.Passed, r.Verdict()))
}

// Verdict returns the text for a comparison that passed.
func (r *Comparison) Verdict() string {
	text := "PASSED"
	if r.WithinOwn {
		text += ": within the model's own sensitivity"
	}
	if r.Ties > 0 {
		text += fmt.Sprintf(", except %s that went to other experts in a tie", cli.Counted(r.Ties, "token"))
	}
	return text
}

// WriteLogits prints how far logits are from the expected ones, if any were compared.
func WriteLogits(a *cli.App, cases []CaseDiff) {
	t := cli.NewTable(">case", "logits", ">positions", ">classes", ">mean KL", ">max KL", ">same top-1", ">undefined",
		"")
	measured := false
	for _, c := range cases {
		for _, s := range c.Outputs {
			if l := s.Logits; l != nil {
				measured = true
				t.Add(c.Case, s.Name, l.Positions, l.Classes, fmt.Sprintf("%.3g", l.MeanKL),
					fmt.Sprintf("%.3g", l.MaxKL), fmt.Sprintf("%.4g%%", 100*l.Top1), l.Undefined,
					a.Verdict(l.Passed, "passed"))
			}
		}
	}
	if measured {
		t.Write(a.Human())
	}
}

// Comparisons is the result of diff and golden compare.
type Comparisons struct {
	Schema      int          `json:"schema"`
	Passed      bool         `json:"passed"`
	Comparisons []Comparison `json:"comparisons"`
}
