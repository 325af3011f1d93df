package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// timeRuns runs the models in turn and records their times.
func (f *options) timeRuns(a *cli.App, all []*timedModel) {
	step, end := a.Progress("round")
	defer end()
	for round := range f.warmup + f.runs {
		for _, t := range all {
			if t.err != nil {
				continue
			}
			start := time.Now()
			err := t.run()
			took := float64(time.Since(start).Nanoseconds()) / 1e6
			if err != nil {
				t.drop(err)
			} else if round >= f.warmup {
				t.Times = append(t.Times, took)
			}
		}
		step(round+1, f.warmup+f.runs)
	}
	for _, t := range all {
		if t.err != nil {
			continue
		}
		if err := t.finish(); err != nil {
			t.drop(err)
		}
		t.close()
	}
}

func (t *timedModel) run() (err error) {
	if t.binding != nil {
		return t.binding.Run(context.Background())
	}
	t.outputs, err = t.session.Run(t.inputs)
	return err
}

// finish reads the outputs of the last run and computes the statistics of the times.
func (t *timedModel) finish() error {
	if t.binding != nil {
		values, err := t.binding.Outputs()
		if err != nil {
			return err
		}
		for _, v := range values {
			x, err := v.Tensor()
			if err != nil {
				return err
			}
			t.outputs = append(t.outputs, x)
		}
	}
	sorted := slices.Sorted(slices.Values(t.Times))
	t.Least, t.Median = sorted[0], quantile(sorted, 0.5)
	t.Spread = (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / t.Median
	return nil
}

// quantile returns a quantile of sorted numbers by linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// report prints the times, and returns an error if a model was not timed.
func (f *options) report(a *cli.App, all []*timedModel, inputs []*onnx.Tensor) error {
	how := "through the host"
	if f.bind {
		how = "kept on the device"
	}
	if f.fixed {
		how += ", of fixed sizes"
	}
	if f.graph {
		how += ", as a CUDA graph"
	}
	if what := backendOf(all); what != "" {
		a.Say("in %s; inputs and outputs %s", what, how)
	}
	a.Say("%s", shapes(inputs))
	t := cli.NewTable("model", ">nodes", ">median ms", ">least", ">spread", ">ratio", ">difference")
	for _, c := range all {
		if c.err != nil {
			t.Add(c.Model, c.Nodes, "-", "", "", "", "")
			continue
		}
		differs := ""
		if c.Differs != nil {
			differs = fmt.Sprintf("%.2g", *c.Differs)
		}
		t.Add(c.Model, c.Nodes, fmt.Sprintf("%.4f", c.Median), fmt.Sprintf("%.4f", c.Least),
			fmt.Sprintf("%.1f%%", 100*c.Spread), fmt.Sprintf("%.3f", c.Ratio), differs)
	}
	t.Write(a.Human())
	return f.conclude(a, all, inputs)
}

// conclude reports the models that were not timed, and prints JSON.
func (f *options) conclude(a *cli.App, all []*timedModel, inputs []*onnx.Tensor) error {
	var missing []error
	for _, c := range all {
		if c.err != nil {
			missing = append(missing, c.err)
			a.Say("%s was not timed: %s", c.Model, strings.TrimPrefix(c.Error, c.Model+": "))
		}
	}
	dims := map[string][]int64{}
	for _, x := range inputs {
		dims[x.Name] = x.Dims
	}
	if err := a.Result(Result{cli.JSONSchema, f.bind, f.fixed, f.graph, dims, all}); err != nil {
		return err
	}
	switch {
	case len(missing) == 0:
		return nil
	case len(missing) == len(all) && cli.ExitCode(missing[0]) == cli.ExitEnvironment:
		return cli.Environment(errors.New("no model was timed"))
	}
	return cli.Failed(fmt.Errorf("%d of %s not timed", len(missing), cli.Counted(len(all), "model")))
}

func backendOf(all []*timedModel) string {
	var list []string
	for _, c := range all {
		if c.err == nil && !slices.Contains(list, c.Backend) {
			list = append(list, c.Backend)
		}
	}
	return strings.Join(list, ", ")
}

func shapes(inputs []*onnx.Tensor) string {
	var list []string
	for _, x := range inputs {
		list = append(list, fmt.Sprintf("%s %s%v", x.Name, x.DataType, x.Dims))
	}
	return strings.Join(list, ", ")
}

type opTime struct {
	Op       string  `json:"op"`
	Provider string  `json:"provider"`
	Nodes    float64 `json:"nodes"` // in a run
	TimeUS   float64 `json:"time_us"`
}

// profileAll times the nodes of each model.
func (f *options) profileAll(a *cli.App, lib ort.Library, paths []string, inputs []*onnx.Tensor) error {
	if f.backend.Provider == session.ProviderCUDA {
		// The driver reads it when it is loaded. Without it, a node's time would cover only its launches.
		os.Setenv("CUDA_LAUNCH_BLOCKING", "1")
	}
	dir, err := atomicfile.MkdirTemp("", "mojo-patch-")
	if err != nil {
		return err
	}
	defer atomicfile.Remove(dir)
	all := make([]*timedModel, len(paths))
	for i, path := range paths {
		t := f.open(a, lib, path, inputs, ort.WithProfiling(filepath.Join(dir, "profile")))
		if all[i] = t; t.err == nil {
			if err := f.profileOne(t); err != nil {
				t.drop(err)
			}
		}
		t.close()
	}
	for _, t := range all {
		if t.err == nil {
			t.writeProfile(a, inputs)
		}
	}
	return f.conclude(a, all, inputs)
}

func (f *options) profileOne(t *timedModel) error {
	for range f.warmup + f.runs {
		if err := t.run(); err != nil {
			return err
		}
	}
	path, err := t.session.EndProfiling()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t.Ops, err = nodeTimes(b, f.warmup)
	return err
}

// profileEvent is an event of onnxruntime's profile.
type profileEvent struct {
	Category string  `json:"cat"`
	Name     string  `json:"name"`
	Start    float64 `json:"ts"` // in microseconds
	Duration float64 `json:"dur"`
	Args     struct {
		Op       string `json:"op_name"`
		Provider string `json:"provider"`
	} `json:"args"`
}

// nodeTimes sums the node times of a profile by op and provider, for one run. Warmup runs do not count.
func nodeTimes(profile []byte, warmup int) ([]opTime, error) {
	var events []profileEvent
	if err := json.Unmarshal(profile, &events); err != nil {
		return nil, fmt.Errorf("cannot read onnxruntime's profile: %w", err)
	}
	var starts []float64
	for _, e := range events {
		if e.Category == "Session" && e.Name == "model_run" {
			starts = append(starts, e.Start)
		}
	}
	slices.Sort(starts)
	if len(starts) <= warmup {
		return nil, fmt.Errorf("onnxruntime's profile has %s, but %d should be skipped", cli.Counted(len(starts),
			"run"),
			warmup)
	}
	runs := float64(len(starts) - warmup)
	var list []opTime
	for _, e := range events {
		if e.Category != "Node" || !strings.HasSuffix(e.Name, "_kernel_time") || e.Start < starts[warmup] {
			continue
		}
		provider := strings.TrimSuffix(e.Args.Provider, "ExecutionProvider")
		i := slices.IndexFunc(list, func(t opTime) bool { return t.Op == e.Args.Op && t.Provider == provider })
		if i < 0 {
			i = len(list)
			list = append(list, opTime{Op: e.Args.Op, Provider: provider})
		}
		list[i].Nodes += 1 / runs
		list[i].TimeUS += e.Duration / runs
	}
	slices.SortStableFunc(list, func(a, b opTime) int {
		return cmp.Or(cmp.Compare(b.TimeUS, a.TimeUS), strings.Compare(a.Op, b.Op))
	})
	return list, nil
}

func (c *timedModel) writeProfile(a *cli.App, inputs []*onnx.Tensor) {
	total, nodes := 0.0, 0.0
	for _, o := range c.Ops {
		total, nodes = total+o.TimeUS, nodes+o.Nodes
	}
	a.Say("%s in %s; %s", c.Model, c.Backend, shapes(inputs))
	t := cli.NewTable("op", "provider", ">nodes", ">us of a run", ">share")
	for _, o := range c.Ops {
		t.Add(o.Op, o.Provider, strconv.FormatFloat(o.Nodes, 'g', 4, 64), fmt.Sprintf("%.1f", o.TimeUS),
			fmt.Sprintf("%.1f%%", 100*o.TimeUS/max(total, 1e-9)))
	}
	t.Add("all", "", strconv.FormatFloat(nodes, 'g', 4, 64), fmt.Sprintf("%.1f", total), "")
	t.Write(a.Human())
}
