// Package run is the command run.
package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/spf13/cobra"
)

type outputSummary struct {
	Name     string        `json:"name"`
	DataType string        `json:"dtype"`
	Shape    []int64       `json:"shape"`
	Min      golden.Number `json:"min"`
	Max      golden.Number `json:"max"`
	Mean     golden.Number `json:"mean"`
	NaN      int           `json:"nan"`
	Inf      int           `json:"inf"`
}

// Options are the flags of run and golden record.
type Options struct {
	Backend       session.Backend  // runs the model
	Inputs        feeds.InputFlags // the cases
	Out           string           // the file or folder to write, or ""
	Count, Repeat int              // random cases; runs of each case
	Record, Force bool             // for golden record; replace a file
	modeFlags
}

// New returns the command run.
func New(a *cli.App) *cobra.Command {
	f := &Options{Count: 1}
	c := &cobra.Command{
		Use:   "run MODEL [KEY=VALUE...]",
		Short: "Run a model in onnxruntime or the built-in evaluator",
		Long: `run runs a model on the cases of a file, or on random inputs that fit a language model (token ids
within the vocabulary, masks that hide nothing), and describes the outputs.

--mode examines the fused ops of a patched model while it runs, either all or the ones that --at names:
diff compares each with its definition, evaluated on the same inputs, and exits with 1 if one is out of
tolerance; dump writes the inputs and outputs of each op to a separate .npz file; analyze counts the
bytes that each reads and writes and the floating-point operations of its definition.

` + session.RanksHelp + "\n\n" + session.ProvidersHelp,
		Example: `  mojo-patch run patched.onnx
  mojo-patch run patched.onnx --inputs recorded.npz --outputs out.npz
  mojo-patch run patched.onnx --dim batch=1 --dim sequence=128 --repeat 20
  mojo-patch run model.onnx --provider qnn backend_type=htp soc_model=60 --provider-only
  mojo-patch run model.onnx --provider openvino --provider-device gpu
  mojo-patch run model.onnx --evaluator
  mojo-patch run patched.onnx --mode diff --feed replace
  mojo-patch run patched.onnx --mode dump --at "3:MoE;*:Attention" --outputs dumped
  mojo-patch run patched.onnx --mode analyze`,
		Args:              f.Backend.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE:              func(c *cobra.Command, args []string) error { return f.Run(a, c, args) },
	}
	f.Backend.AddTo(c)
	f.Inputs.AddTo(c)
	c.Flags().StringVarP(&f.Out, "outputs", "o", "",
		"write inputs and outputs to this .npz file, or folder of ONNX test data")
	cli.CompleteFile(c, "outputs", "npz")
	c.Flags().IntVar(&f.Repeat, "repeat", 1, "run each case this many times and report the median time")
	f.modeFlags.flags(c)
	cli.Headings(c, "outputs inputs dim provider threads json", "Modes: mode repeat at feed", "Inputs: seed",
		"Runtime: backend provider-option provider-library provider-device provider-only kernels optimize "+
			"products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "run", "run-mode")
	return c
}

// Run runs the model on each case, keeps inputs and outputs if requested, and reports.
func (f *Options) Run(a *cli.App, c *cobra.Command, args []string) error {
	args, err := f.Backend.Ranks(a, c, f.Backend.Take(args, 1))
	if err != nil {
		return err
	}
	if err := f.Backend.RejectRanked(f.mode != modeRun && !f.Record, "--mode", "it runs a model op by op"); err != nil {
		return err
	}
	if err := f.Backend.Check(c); err != nil {
		return err
	}
	if err := f.Inputs.Check(c); err != nil {
		return err
	}
	if f.Repeat < 1 {
		return fmt.Errorf("--repeat %d: must be 1 or more", f.Repeat)
	}
	if !f.Record {
		if err := f.modeFlags.check(f.Out); err != nil {
			return err
		}
	}
	if f.Out != "" && f.mode != modeDump {
		if err := savable(f.Out); err != nil {
			return err
		}
	}
	m, err := a.Read(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	cases, err := f.Inputs.Cases(m, f.Count)
	if err != nil {
		return err
	}
	if f.mode != modeRun && !f.Record {
		return f.look(a, m, cases)
	}
	r, what, err := f.Backend.Open(a, m)
	if err != nil {
		return err
	}
	defer r.Close()
	times, err := feeds.RunCases(a, r, cases, f.Repeat)
	if err != nil {
		return cli.Failed(err)
	}
	if f.Out != "" && a.Rank == 0 {
		if err := save(f.Out, cases); err != nil {
			return err
		}
	}
	if f.Record {
		if a.Say("wrote %s to %s", cli.Counted(len(cases), "case"), f.Out); !a.JSON && !a.Verbose {
			return nil
		}
	}
	return reportRun(a, args[0], what, cases, times)
}

// save writes cases to a .npz file or a folder.
func save(path string, cases []golden.Case) error {
	if strings.HasSuffix(path, ".npz") {
		return golden.SaveNPZ(path, cases)
	}
	return golden.SaveDir(path, cases)
}

// savable returns an error if save cannot write to path, before any run.
func savable(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !strings.HasSuffix(path, ".npz") {
		return fmt.Errorf("the name of the file %s does not end in .npz: choose a .npz file or a folder", path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot write %s: %s is not a folder", path, filepath.Dir(path))
	}
	return nil
}

func reportRun(a *cli.App, path, what string, cases []golden.Case, times []float64) error {
	var results []runCase
	a.Say("%s in %s", path, what)
	for i, c := range cases {
		r := runCase{Case: i, TimeMS: times[i]}
		a.Say("case %d: %.3f ms", i, times[i])
		t := cli.NewTable("output", "type", "shape", ">min", ">max", ">mean", ">NaN", ">Inf")
		for _, o := range c.Outputs {
			s, err := summarise(o)
			if err != nil {
				return err
			}
			r.Outputs = append(r.Outputs, s)
			t.Add(s.Name, s.DataType, s.Shape, cli.Figure(s.Min), cli.Figure(s.Max), cli.Figure(s.Mean), s.NaN, s.Inf)
		}
		t.Write(a.Human())
		results = append(results, r)
	}
	return a.Result(Result{cli.JSONSchema, path, what, results})
}

func summarise(t *onnx.Tensor) (outputSummary, error) {
	s := outputSummary{Name: t.Name, DataType: t.DataType.String(), Shape: t.Dims,
		Min: golden.Number(math.NaN()), Max: golden.Number(math.NaN()), Mean: golden.Number(math.NaN())}
	if s.Shape == nil {
		s.Shape = []int64{}
	}
	v, err := reference.FromONNX(t)
	if err != nil {
		return s, fmt.Errorf("output %q: %w", t.Name, err)
	}
	values := v.F
	for _, x := range v.I {
		values = append(values, float64(x))
	}
	least, greatest, sum, n := math.Inf(1), math.Inf(-1), 0.0, 0
	for _, x := range values {
		switch {
		case math.IsNaN(x):
			s.NaN++
		case math.IsInf(x, 0):
			s.Inf++
		default:
			least, greatest = min(least, x), max(greatest, x)
			sum += x
			n++
		}
	}
	if n > 0 {
		s.Min, s.Max, s.Mean = golden.Number(least), golden.Number(greatest), golden.Number(sum/float64(n))
	}
	return s, nil
}

// Result is the result of run and golden record.
type Result struct {
	Schema  int       `json:"schema"`
	Model   string    `json:"model"`
	Backend string    `json:"backend"`
	Cases   []runCase `json:"cases"`
}

// runCase is one run.
type runCase struct {
	Case    int             `json:"case"`
	TimeMS  float64         `json:"time_ms"`
	Outputs []outputSummary `json:"outputs"`
}
