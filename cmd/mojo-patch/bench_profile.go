package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

type opTime struct {
	Op       string  `json:"op"`
	Provider string  `json:"provider"`
	Nodes    float64 `json:"nodes"` // in a run
	TimeUS   float64 `json:"time_us"`
}

// profileAll times the nodes of each model.
func (f *benchFlags) profileAll(a *app, lib ort.Library, paths []string, inputs []*onnx.Tensor) error {
	if f.backend.provider == providerCUDA {
		// before the driver is loaded; else a node's time is that of its launches
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

func (f *benchFlags) profileOne(t *timedModel) error {
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

// nodeTimes sums the times of nodes in a profile by op and provider, for a run: all runs count but the first ones.
func nodeTimes(profile []byte, warmup int) ([]opTime, error) {
	var events []profileEvent
	if err := json.Unmarshal(profile, &events); err != nil {
		return nil, fmt.Errorf("onnxruntime's profile cannot be read: %w", err)
	}
	var starts []float64
	for _, e := range events {
		if e.Category == "Session" && e.Name == "model_run" {
			starts = append(starts, e.Start)
		}
	}
	slices.Sort(starts)
	if len(starts) <= warmup {
		return nil, fmt.Errorf("onnxruntime's profile has %s, and %d are to be left out", counted(len(starts), "run"),
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

func (c *timedModel) writeProfile(a *app, inputs []*onnx.Tensor) {
	total, nodes := 0.0, 0.0
	for _, o := range c.Ops {
		total, nodes = total+o.TimeUS, nodes+o.Nodes
	}
	a.say("%s in %s; %s", c.Model, c.Backend, shapes(inputs))
	t := newTable("op", "provider", ">nodes", ">us of a run", ">share")
	for _, o := range c.Ops {
		t.add(o.Op, o.Provider, strconv.FormatFloat(o.Nodes, 'g', 4, 64), fmt.Sprintf("%.1f", o.TimeUS),
			fmt.Sprintf("%.1f%%", 100*o.TimeUS/max(total, 1e-9)))
	}
	t.add("all", "", strconv.FormatFloat(nodes, 'g', 4, 64), fmt.Sprintf("%.1f", total), "")
	t.write(a.human())
}
