package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// runFlags are the flags of run and golden record.
type runFlags struct {
	backend       backend
	inputs        inputFlags
	out           string
	count, repeat int
	record, force bool
	modeFlags
}

func newRun(a *app) *cobra.Command {
	f := &runFlags{count: 1}
	c := &cobra.Command{
		Use:   "run MODEL [KEY=VALUE...]",
		Short: "Run a model in onnxruntime or the built-in evaluator",
		Long: `run runs a model on the cases of a file, or on random inputs that fit a language model (token ids
within the vocabulary, masks that hide nothing), and describes the outputs.

--mode examines the fused ops of a patched model while it runs, either all or the ones that --at names:
diff compares each with its definition, evaluated on the same inputs, and exits with 1 if one is out of
tolerance; dump writes the inputs and outputs of each op to a separate .npz file; analyze counts the
bytes that each reads and writes and the floating-point operations of its definition.

` + providersHelp,
		Example: `  mojo-patch run patched.onnx
  mojo-patch run patched.onnx --inputs recorded.npz --outputs out.npz
  mojo-patch run patched.onnx --dim batch=1 --dim sequence=128 --repeat 20
  mojo-patch run model.onnx --provider qnn backend_type=htp soc_model=60 --provider-only
  mojo-patch run model.onnx --provider openvino --provider-device gpu
  mojo-patch run model.onnx --evaluator
  mojo-patch run patched.onnx --mode diff --feed replace
  mojo-patch run patched.onnx --mode dump --at "3:MoE;*:Attention" --outputs dumped
  mojo-patch run patched.onnx --mode analyze`,
		Args:              f.backend.modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(a, c, args) },
	}
	f.backend.flags(c)
	f.inputs.flags(c)
	c.Flags().StringVarP(&f.out, "outputs", "o", "",
		"write inputs and outputs to this .npz file, or folder of ONNX test data")
	completeFile(c, "outputs", "npz")
	c.Flags().IntVar(&f.repeat, "repeat", 1, "run each case this many times and report the median time")
	f.modeFlags.flags(c)
	headings(c, "outputs inputs dim provider threads json", "Modes: mode repeat at feed", "Inputs: seed",
		"Runtime: backend provider-option provider-library provider-device provider-only kernels optimize "+
			"evaluator", pathsHeading)
	a.jsonFlag(c, "run", "run-mode")
	return c
}

// run runs the model on each case, keeps inputs and outputs if requested, and reports.
func (f *runFlags) run(a *app, c *cobra.Command, args []string) error {
	args = f.backend.take(args, 1)
	if err := f.backend.check(c); err != nil {
		return err
	}
	if err := f.inputs.check(c); err != nil {
		return err
	}
	if f.repeat < 1 {
		return fmt.Errorf("--repeat %d: must be 1 or more", f.repeat)
	}
	if !f.record {
		if err := f.modeFlags.check(c, f.out); err != nil {
			return err
		}
	}
	if f.out != "" && f.mode != modeDump {
		if err := savable(f.out); err != nil {
			return err
		}
	}
	m, err := a.read(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	cases, err := f.inputs.cases(m, f.count)
	if err != nil {
		return err
	}
	if f.mode != modeRun && !f.record {
		return f.look(a, m, cases)
	}
	r, what, err := f.backend.open(a, m)
	if err != nil {
		return err
	}
	defer r.Close()
	times, err := runCases(a, r, cases, f.repeat)
	if err != nil {
		return failed(err)
	}
	if f.out != "" {
		if err := save(f.out, cases); err != nil {
			return err
		}
	}
	if f.record {
		if a.say("wrote %s to %s", counted(len(cases), "case"), f.out); !a.json && !a.verbose {
			return nil
		}
	}
	return reportRun(a, args[0], what, cases, times)
}

// runCases fills in the outputs of the cases and returns each one's time in milliseconds: the median of the
// repetitions, without the first, which warms up, if there are several.
func runCases(a *app, r runner, cases []golden.Case, repeat int) ([]float64, error) {
	step, end := a.progress("case")
	defer end()
	times := make([]float64, len(cases))
	for i := range cases {
		var err error
		if cases[i], err = cases[i].Followed(cases[:i]); err != nil {
			return nil, err
		}
		var laps []float64
		for range repeat {
			start := time.Now()
			out, err := r.Run(cases[i].Inputs)
			if err != nil {
				return nil, err
			}
			laps = append(laps, milliseconds(start))
			cases[i].Outputs = out
		}
		if len(laps) > 1 {
			laps = laps[1:]
		}
		slices.Sort(laps)
		times[i] = laps[len(laps)/2]
		step(i+1, len(cases))
	}
	return times, nil
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

func reportRun(a *app, path, what string, cases []golden.Case, times []float64) error {
	var results []runCase
	a.say("%s in %s", path, what)
	for i, c := range cases {
		r := runCase{Case: i, TimeMS: times[i]}
		a.say("case %d: %.3f ms", i, times[i])
		t := newTable("output", "type", "shape", ">min", ">max", ">mean", ">NaN", ">Inf")
		for _, o := range c.Outputs {
			s, err := summarise(o)
			if err != nil {
				return err
			}
			r.Outputs = append(r.Outputs, s)
			t.add(s.Name, s.DataType, s.Shape, figure(s.Min), figure(s.Max), figure(s.Mean), s.NaN, s.Inf)
		}
		t.write(a.human())
		results = append(results, r)
	}
	return a.result(runResult{jsonSchema, path, what, results})
}

func figure(n golden.Number) string { return fmt.Sprintf("%.6g", float64(n)) }

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
