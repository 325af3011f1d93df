package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/spf13/cobra"
)

// The modes of run.
const (
	modeRun     = "run"
	modeDiff    = "diff"
	modeDump    = "dump"
	modeAnalyze = "analyze"
)

// The values of --feed.
const (
	feedObserve = "observe"
	feedReplace = "replace"
)

// modeFlags make run examine the fused ops of a model one by one.
type modeFlags struct {
	mode, at, feed string
	filter         trace.Filter
}

func (f *modeFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "mode", modeRun, "examine each fused op: diff, dump or analyze (default: only run "+
		"the model)")
	c.Flags().StringVar(&f.at, "at", "", "the ops to examine, as LAYER:OP with * for any, separated by ;")
	c.Flags().StringVar(&f.feed, "feed", feedObserve,
		"continue with the output of the op (observe) or of its definition (replace)")
	cli.Rules(c, "at requires mode", "feed requires mode=diff", "mode excludes repeat: --repeat times runs")
	cli.CompleteValues(c, "mode", func() []string { return []string{modeDiff, modeDump, modeAnalyze} }, false)
	cli.CompleteValues(c, "feed", func() []string { return []string{feedObserve, feedReplace} }, false)
}

// check returns an error if flags conflict; out is where outputs are written.
func (f *modeFlags) check(out string) (err error) {
	switch {
	case !slices.Contains([]string{modeRun, modeDiff, modeDump, modeAnalyze}, f.mode):
		return fmt.Errorf("--mode %q: must be diff, dump or analyze", f.mode)
	case f.feed != feedObserve && f.feed != feedReplace:
		return fmt.Errorf("--feed %q: must be observe or replace", f.feed)
	case f.mode == modeDump && out == "":
		return errors.New("--mode dump needs a folder to write to: use --outputs FOLDER")
	case f.mode != modeRun && f.mode != modeDump && out != "":
		return fmt.Errorf("--mode %s does not support --outputs", f.mode)
	}
	if f.at != "" {
		if f.filter, err = trace.ParseFilter(f.at); err != nil {
			return fmt.Errorf("--at %w", err)
		}
	}
	return nil
}

// opResult is the result of a mode for one fused op.
type opResult struct {
	Case    int            `json:"case"`
	Node    string         `json:"node"`
	Op      string         `json:"op"`
	Block   string         `json:"block"`
	Outputs []golden.Stats `json:"outputs,omitempty"` // of --mode diff: compared with the op's definition
	File    string         `json:"file,omitempty"`    // of --mode dump
	Cost    *trace.Cost    `json:"cost,omitempty"`    // of --mode analyze
}

// look runs the model on the cases and examines its fused ops.
func (f *Options) look(a *cli.App, m *onnx.Model, cases []golden.Case) error {
	if err := session.InlineOthers(m); err != nil {
		return err
	}
	sites := trace.Sites(m, f.filter)
	if len(sites) == 0 {
		return cli.Failed(fmt.Errorf("%s has no fused op for --mode %s%s", m.Path, f.mode,
			map[bool]string{true: ": --at " + f.at}[f.at != ""]))
	}
	what := ""
	open := f.Backend.Pieces(a, &what)
	mode := map[string]func(*opResult, *trace.Visited) error{modeDiff: f.diffOp, modeDump: f.dumpOp,
		modeAnalyze: analyzeOp(trace.NewCosts())}[f.mode]
	if f.mode == modeDump {
		if err := os.MkdirAll(f.Out, 0o777); err != nil {
			return err
		}
	}
	step, end := a.Progress("op")
	defer end()
	list := []opResult{}
	for i, c := range cases {
		if len(c.Follows) > 0 {
			return fmt.Errorf("case %d: --mode does not support recorded cases that continue from a past of an "+
				"earlier case", i)
		}
		err := trace.Visit(m, open, c.Inputs, sites, func(v *trace.Visited) error {
			r := opResult{Case: i, Node: v.Node.Label(), Op: v.Node.OpType, Block: v.Block.String()}
			err := mode(&r, v)
			list = append(list, r)
			step(len(list), len(sites)*len(cases))
			return err
		})
		if err != nil {
			return cli.Failed(err)
		}
	}
	end()
	return f.reportOps(a, m.Path, what, list)
}

// diffOp compares the outputs of a fused op with its definition's on the same inputs.
func (f *Options) diffOp(r *opResult, v *trace.Visited) error {
	want, err := v.Reference()
	if err != nil {
		return err
	}
	for i, w := range want {
		if w == nil {
			continue
		}
		s, err := golden.Compare(v.Outputs[i], w, golden.Tolerances{}.Inner(w.Name, w.DataType, onnx.Undefined))
		if err != nil {
			return err
		}
		r.Outputs = append(r.Outputs, s)
	}
	if f.feed == feedReplace {
		v.Replace(want)
	}
	return nil
}

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// dumpOp writes the inputs of a fused op, except weights, and its outputs.
func (f *Options) dumpOp(r *opResult, v *trace.Visited) error {
	var c golden.Case
	for i, t := range v.Inputs {
		if t != nil && c.Input(t.Name) == nil && v.Node.Inputs[i] != nil {
			c.Inputs = append(c.Inputs, t)
		}
	}
	for _, t := range v.Outputs {
		if t != nil {
			c.Outputs = append(c.Outputs, t)
		}
	}
	place := strings.ReplaceAll(r.Block, " ", "-")
	name := strings.Trim(unsafeInNames.ReplaceAllString(r.Node, "_"), "_.")
	r.File = filepath.Join(f.Out, fmt.Sprintf("%d-%s-%s-%s.npz", r.Case, place, r.Op, name[max(0, len(name)-100):]))
	return golden.SaveNPZ(r.File, []golden.Case{c})
}

func analyzeOp(costs *trace.Costs) func(*opResult, *trace.Visited) error {
	return func(r *opResult, v *trace.Visited) error {
		cost, err := costs.Of(v)
		r.Cost = &cost
		return err
	}
}

func (f *Options) reportOps(a *cli.App, path, what string, list []opResult) error {
	a.Say("%s in %s", path, what)
	passed := true
	var t *cli.Table
	switch f.mode {
	case modeDiff:
		t = cli.NewTable(">case", "block", "op", "output", "type", ">max abs", ">max rel", ">cosine", "")
		for _, r := range list {
			for _, s := range r.Outputs {
				t.Add(r.Case, r.Block, r.Op, s.Name, s.DataType, fmt.Sprintf("%.3g", s.MaxAbs),
					fmt.Sprintf("%.3g", s.MaxRel), fmt.Sprintf("%.7f", s.Cosine), a.Verdict(s.Passed, "passed"))
				passed = passed && s.Passed
			}
		}
	case modeDump:
		t = cli.NewTable(">case", "block", "op", "file")
		for _, r := range list {
			t.Add(r.Case, r.Block, r.Op, r.File)
		}
	case modeAnalyze:
		t = cli.NewTable(">case", "block", "op", "node", ">read", ">written", ">FLOPs", ">FLOPs a byte")
		var sum trace.Cost
		for _, r := range list {
			t.Add(r.Case, r.Block, r.Op, r.Node, english.Bytes(r.Cost.Read), english.Bytes(r.Cost.Written),
				r.Cost.FLOPs,
				perByte(*r.Cost))
			sum.Read, sum.Written, sum.FLOPs = sum.Read+r.Cost.Read, sum.Written+r.Cost.Written, sum.FLOPs+r.Cost.FLOPs
		}
		t.Add("", "all", "", "", english.Bytes(sum.Read), english.Bytes(sum.Written), sum.FLOPs, perByte(sum))
	}
	t.Write(a.Human())
	err := a.Result(ModeResult{cli.JSONSchema, path, what, f.mode, passed, list})
	if err == nil && f.mode == modeDiff {
		a.Say("%s", a.Verdict(passed, "PASSED"))
	}
	if err == nil && !passed {
		err = cli.Failed(nil)
	}
	return err
}

func perByte(c trace.Cost) string {
	return fmt.Sprintf("%.3g", float64(c.FLOPs)/float64(max(1, c.Read+c.Written)))
}

// ModeResult is the result of run --mode.
type ModeResult struct {
	Schema  int        `json:"schema"`
	Model   string     `json:"model"`
	Backend string     `json:"backend"`
	Mode    string     `json:"mode"`
	Passed  bool       `json:"passed"`
	Ops     []opResult `json:"ops"`
}
