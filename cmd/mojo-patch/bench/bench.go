// Package bench is the command bench.
package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/spf13/cobra"
)

const benchModels = 16

type options struct {
	backend      session.Backend
	inputs       feeds.InputFlags
	warmup, runs int
	bind, graph  bool
	profile      bool
	fixed        bool
}

// New returns the command bench.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "bench MODEL... [KEY=VALUE...]",
		Short: "Time models in onnxruntime, in turn",
		Long: `bench opens each model, then runs all of them in turn, one run of each per round, on the first case
of --inputs, or on random inputs that fit the first model. It prints the median, the minimum, the
spread (the middle half of the runs, relative to the median), the ratio to the first model's median,
and the difference from the first model's outputs, relative to the greatest magnitude. If a model
does not open or run, bench reports the reason, times the others, and exits with 1.

With --bind, the default on CUDA, inputs are copied to the device once and outputs stay there.
Without it each run takes inputs from the host and returns outputs to it. With --fixed onnxruntime
knows the sizes of the inputs' dimensions, and computes shapes once, when it opens the model. With
--cuda-graph, which implies --fixed, it records the work of a run once and launches it as one.

With --profile bench times nodes instead of runs: for each model it prints the time of each op,
summed over its nodes, from onnxruntime's profile. On CUDA each node then waits until its kernels
have run (CUDA_LAUNCH_BLOCKING=1), so the sum exceeds the time of a run.

` + session.RanksHelp,
		Example: `  mojo-patch bench model.onnx patched.onnx
  mojo-patch bench model.onnx patched.onnx --dim batch=1 --dim sequence=1 --dim past=512 --runs 100
  mojo-patch bench model.onnx patched.onnx --provider cuda --cuda-graph
  mojo-patch bench model.onnx patched.onnx --profile`,
		Args:              f.backend.ModelArgs(1, benchModels),
		ValidArgsFunction: cli.CompleteModels(benchModels),
		RunE: func(c *cobra.Command, args []string) error {
			args, err := f.backend.Ranks(a, c, f.backend.Take(args, 1))
			if err != nil {
				return err
			}
			if err := f.check(c); err != nil {
				return err
			}
			return f.bench(a, args)
		},
	}
	f.backend.AddTo(c)
	f.inputs.AddTo(c)
	c.Flags().IntVar(&f.warmup, "warmup", 3, "warmup runs of each model, which are not timed")
	c.Flags().IntVar(&f.runs, "runs", 20, "timed runs of each model")
	c.Flags().BoolVar(&f.bind, "bind", false,
		"keep inputs and outputs on the device, and static caches in place (default: with --provider cuda)")
	c.Flags().BoolVar(&f.fixed, "fixed", false,
		"tell onnxruntime the sizes of the inputs' dimensions when it opens the model")
	c.Flags().BoolVar(&f.graph, "cuda-graph", false,
		"record a run as a CUDA graph and replay it; with --bind and --fixed")
	c.Flags().BoolVar(&f.profile, "profile", false, "time the nodes instead of the runs")
	cli.Headings(c, "runs warmup dim inputs provider threads bind profile json", "Inputs: seed fixed",
		"Runtime: backend cuda-graph provider-option provider-library provider-device provider-only kernels "+
			"optimize products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "bench")
	return c
}

func (f *options) check(c *cobra.Command) error {
	if err := f.backend.Check(c); err != nil {
		return err
	}
	if f.backend.Evaluator {
		return errors.New("bench times models only in onnxruntime, not in the built-in evaluator")
	}
	f.backend.Fallback, f.backend.RuntimeOnly = false, true
	if err := f.inputs.Check(c); err != nil {
		return err
	}
	if f.warmup < 0 {
		return fmt.Errorf("--warmup %d: must be 0 or more", f.warmup)
	}
	if f.runs < 1 {
		return fmt.Errorf("--runs %d: must be 1 or more", f.runs)
	}
	cuda := f.backend.Provider == session.ProviderCUDA
	if f.graph {
		switch {
		case !cuda:
			return errors.New("--cuda-graph requires --provider cuda")
		case c.Flags().Changed("bind") && !f.bind:
			return errors.New("--cuda-graph keeps inputs and outputs on the device: it cannot be combined with " +
				"--bind=false")
		case c.Flags().Changed("fixed") && !f.fixed:
			return errors.New("a CUDA graph has fixed sizes: --cuda-graph cannot be combined with --fixed=false")
		case f.profile:
			return errors.New("a CUDA graph has no nodes to time: --cuda-graph cannot be combined with --profile")
		}
	}
	if !c.Flags().Changed("bind") {
		f.bind = cuda
	}
	f.fixed = f.fixed || f.graph
	return nil
}

// bench opens the models, times them and reports the times.
func (f *options) bench(a *cli.App, paths []string) error {
	lib, err := ort.Find(f.backend.Onnxruntime)
	if err != nil {
		return err
	}
	first, err := a.Read(paths[0])
	if err != nil {
		return err
	}
	defer first.Close()
	cases, err := f.inputs.Cases(first, 1)
	if err != nil {
		return err
	}
	if f.graph {
		f.backend.CUDA = map[string]string{"enable_cuda_graph": "1"}
	}
	if f.profile {
		return f.profileAll(a, lib, paths, cases[0].Inputs)
	}
	all := make([]*timedModel, len(paths))
	for i, path := range paths {
		all[i] = f.open(a, lib, path, cases[0].Inputs)
		defer all[i].close()
	}
	f.timeRuns(a, all)
	compare(all)
	return f.report(a, all, cases[0].Inputs)
}

// timedModel is a model that is timed beside others.
type timedModel struct {
	Model   string         `json:"model"`
	Backend string         `json:"backend,omitempty"`
	Nodes   int            `json:"nodes,omitempty"`
	Times   []float64      `json:"times_ms,omitempty"`
	Median  float64        `json:"median_ms,omitempty"`
	Least   float64        `json:"least_ms,omitempty"`
	Spread  float64        `json:"spread,omitempty"`
	Ratio   float64        `json:"ratio,omitempty"`      // to the first model that runs
	Differs *golden.Number `json:"difference,omitempty"` // from its outputs, relative to the greatest magnitude
	Error   string         `json:"error,omitempty"`
	Ops     []opTime       `json:"ops,omitempty"`
	session *ort.Session
	binding *ort.Binding // nil if inputs and outputs go through the host
	inputs  []*onnx.Tensor
	outputs []*onnx.Tensor
	err     error
}

// drop excludes the model because of an error, and frees its resources.
func (t *timedModel) drop(err error) {
	t.err, t.Error = err, err.Error()
	t.close()
}

// open opens a model for timing. If it fails, the returned model has the error.
func (f *options) open(a *cli.App, lib ort.Library, path string, inputs []*onnx.Tensor,
	more ...ort.Option) *timedModel {
	t := &timedModel{Model: path}
	if err := t.open(f, a, lib, inputs, more); err != nil {
		t.drop(err)
	}
	return t
}

func (t *timedModel) open(f *options, a *cli.App, lib ort.Library, inputs []*onnx.Tensor, more []ort.Option) error {
	m, err := a.Read(t.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	t.Nodes = len(m.Graph.Nodes)
	cases, err := feeds.OwnParts(m, []golden.Case{{Inputs: inputs}})
	if err != nil {
		return err
	}
	c, err := feeds.Fitted(m, cases[0])
	if err != nil {
		return fmt.Errorf("it does not take the inputs of the first model: %w", err)
	}
	inputs = c.Inputs
	if f.fixed {
		more = append(more, dimensions(m, inputs)...)
	}
	if t.session, t.Backend, err = f.backend.Session(a, m, lib, more...); err != nil {
		return err
	}
	t.inputs = inputs
	if !f.bind {
		return nil
	}
	if t.binding, err = t.session.Bind(); err != nil {
		return err
	}
	for _, x := range inputs {
		if err := t.binding.Input(x); err != nil {
			return err
		}
	}
	for _, o := range t.session.Outputs() {
		if err := t.binding.Output(o.Name); err != nil {
			return err
		}
	}
	return t.bindBuffers(m, inputs)
}

// bindBuffers binds one value to both the input and the output of each cache that is written in place.
func (t *timedModel) bindBuffers(m *onnx.Model, inputs []*onnx.Tensor) error {
	for _, in := range roles.Find(m) {
		x := golden.Case{Inputs: inputs}.Input(in.Value.Name)
		present := in.Present()
		if present == nil || x == nil {
			continue
		}
		v, err := t.session.Allocate(x.Name, x.Dims)
		if err == nil {
			err = errors.Join(v.Write(x), t.binding.InputValue(x.Name, v), t.binding.OutputValue(present.Name, v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dimensions returns options that set the named dimensions of the model's inputs to the sizes of the given tensors.
func dimensions(m *onnx.Model, inputs []*onnx.Tensor) []ort.Option {
	var options []ort.Option
	for _, v := range m.Graph.Inputs {
		i := slices.IndexFunc(inputs, func(x *onnx.Tensor) bool { return x.Name == v.Name })
		t, ok := v.Type()
		if !ok || i < 0 || len(t.Dims) != len(inputs[i].Dims) {
			continue
		}
		for axis, d := range t.Dims {
			if d.Value < 0 && d.Param != "" {
				options = append(options, ort.WithDimension(d.Param, inputs[i].Dims[axis]))
			}
		}
	}
	return options
}

func (t *timedModel) close() {
	if t.session != nil {
		t.session.Close()
		t.session, t.binding = nil, nil
	}
}

// compare sets each model's ratio to, and difference from, the first model that ran.
func compare(all []*timedModel) {
	var first *timedModel
	for _, t := range all {
		switch {
		case t.err != nil:
		case first == nil:
			first = t
			t.Ratio = 1
		default:
			t.Ratio = t.Median / first.Median
			d, err := apart(t.outputs, first.outputs)
			if err != nil {
				t.drop(err)
				continue
			}
			t.Differs = &d
		}
	}
}

// apart returns the greatest difference of the outputs, each relative to its output's greatest magnitude.
func apart(got, want []*onnx.Tensor) (golden.Number, error) {
	stats, err := golden.CompareAll(got, want, golden.Tolerances{})
	worst := golden.Number(0)
	for _, s := range stats {
		if s.Got != s.Want {
			worst = golden.Number(math.Inf(1))
		} else if s.MaxAbs > 0 {
			worst = max(worst, s.MaxAbs/s.MaxWant)
		}
	}
	return worst, err
}

// Result is the result of bench.
type Result struct {
	Schema int  `json:"schema"`
	Bound  bool `json:"bound"`      // inputs and outputs stayed on the device
	Fixed  bool `json:"fixed"`      // outputs had known sizes
	Graph  bool `json:"cuda_graph"` // runs were replayed as a CUDA graph
	// Inputs are the shapes of the inputs, by name.
	Inputs map[string][]int64 `json:"inputs"`
	Models []*timedModel      `json:"models"`
}
