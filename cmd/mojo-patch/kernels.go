package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/rewrite/registry"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/spf13/cobra"
)

// kernelRow is an op with a combination of types on a device, and its JSON form.
type kernelRow struct {
	Kernel string   `json:"kernel"`
	Op     string   `json:"op"`
	Types  []string `json:"types"`
	Device string   `json:"device"`
	// Forms is the number of combinations of attributes and optional inputs that were tried.
	Forms int `json:"forms"`
	// Status is "runs", "fails", "unknown" if it cannot be tried here, or "standard" for onnxruntime's own kernel.
	Status string `json:"status"`
	// MaxRel is the difference from the op's definition, relative to the greatest magnitude.
	MaxRel *float64 `json:"max_rel,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// Shapes of the inputs, and how many nodes of the model have them, with --model.
	Shapes [][]int64 `json:"shapes,omitempty"`
	Nodes  int       `json:"nodes,omitempty"`

	away bool // the reason holds for every kernel of the device
}

// The states of a kernel.
const (
	kernelRuns     = "runs"
	kernelFails    = "fails"
	kernelUnknown  = "unknown"
	kernelStandard = "standard"
)

func newKernels(a *app) *cobra.Command {
	var lib, onnxruntime, model string
	var inputs inputFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels by op, type and device, and try each on this machine",
		Long: `kernels lists every kernel with the ops, types and devices that it supports. If onnxruntime and the
kernel library are found, it runs each kernel on the hard inputs that apply checks sites with (small,
large, tiny, zero, one-hot, repeated; for attention, paddings), in every form that its attributes
allow, and compares it with the op's definition. It exits with 1 if a kernel fails, and with 4 if
onnxruntime or the library is missing. Standard ops need no library and are not tried.

--model tries the kernels that a model needs, in the forms, types and shapes of its fused nodes, or, if
it was not patched, of the nodes that apply would make. --dim sets the sizes of its inputs.

` + devicesHelp,
		Example: `  mojo-patch kernels
  mojo-patch kernels --kernels-lib build/libmojo_ops.so --json
  mojo-patch kernels --model model.onnx --dim batch=1 --dim sequence=512`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := inputs.check(c); err != nil {
				return err
			}
			try := a.tryKernels
			if model != "" {
				needed, err := a.neededKernels(model, &inputs)
				if err != nil {
					return err
				}
				if len(needed) == 0 {
					return &exitError{exitNothing, fmt.Errorf("%s needs no kernel: it has no fused ops, and apply "+
						"makes none", model)}
				}
				try = func(onnxruntime, lib string) ([]kernelRow, error) {
					return tryNeeded(needed, onnxruntime, lib)
				}
			} else if c.Flags().Changed("dim") || c.Flags().Changed("inputs") || c.Flags().Changed("seed") {
				return errors.New("--dim, --inputs and --seed require --model")
			}
			rows, missing := try(onnxruntime, lib)
			if err := a.result(kernelsResult{jsonSchema, rows}); err != nil {
				return err
			}
			if !a.json {
				writeKernels(a.out, rows)
			}
			if missing != nil {
				return environment(missing)
			}
			for _, r := range rows {
				if r.Status == kernelFails {
					return failed(fmt.Errorf("%s (%s): %s", r.Op, strings.Join(r.Types, ", "), r.Reason))
				}
			}
			return nil
		},
	}
	libraryFlags(c, &onnxruntime, &lib)
	c.Flags().StringVar(&model, "model", "", "try the kernels that this model needs, with its shapes and types")
	completeFile(c, "model", "onnx")
	inputs.flags(c)
	a.jsonFlag(c, "kernels")
	return c
}

// npuNotTried is the reason that kernels for CANN do not run here.
const npuNotTried = "they need an Ascend device, which this command does not look for (docs/kernels.md explains how " +
	"they are tested)"

// probers run the kernels of each available device.
type probers struct {
	cpu, cuda *prober
	noCUDA    error
}

// newProbers opens the available devices. missing is the reason if kernels cannot run on the CPU. If kernels for CUDA
// or an NPU cannot run, only their rows say why: most machines lack these devices.
func newProbers(onnxruntime, lib string) (p *probers, missing error) {
	p = &probers{}
	p.cpu, missing = newProber(onnxruntime, lib, providerCPU)
	p.cuda, p.noCUDA = newProber(onnxruntime, lib, providerCUDA)
	return p, missing
}

func (p *probers) close() {
	for _, one := range []*prober{p.cpu, p.cuda} {
		if one != nil {
			one.close()
		}
	}
}

// of returns the prober for the kernels of a device, or the reason that they cannot run.
func (p *probers) of(device string) (*prober, string) {
	switch {
	case strings.EqualFold(device, deviceCUDA) && p.noCUDA != nil:
		return nil, firstLine(p.noCUDA)
	case strings.EqualFold(device, deviceCUDA):
		return p.cuda, ""
	case strings.EqualFold(device, deviceNPU):
		return nil, npuNotTried
	}
	return p.cpu, ""
}

// tryKernels runs every kernel. If kernels cannot run, missing is the reason.
func (a *app) tryKernels(onnxruntime, lib string) (rows []kernelRow, missing error) {
	probers, missing := newProbers(onnxruntime, lib)
	defer probers.close()
	var list []*kernelRow
	var tries []func()
	for _, k := range append(registry.ScanAllKernels(), registry.StoredKernels()...) {
		p, reason := probers.of(k.Device)
		if len(k.Ops) == 0 {
			list = append(list, &kernelRow{Kernel: k.ID, Op: strings.Join(k.Patterns, ", "), Types: []string{},
				Device: k.Device, Status: kernelStandard, Reason: k.Summary})
		}
		for _, name := range k.Ops {
			op := fused.Lookup(name)
			if name == fused.QMoEName { // its definition leaves the rounding between its products open
				continue
			}
			for _, types := range op.Types {
				r := &kernelRow{Reason: reason, away: p == nil}
				list = append(list, r)
				tries = append(tries, func() { r.try(p, k, op, types) })
			}
		}
	}
	a.together("trying kernel", tries)
	for _, r := range list {
		if r.Forms > 0 || r.Status == kernelStandard { // otherwise no form of weights has these types
			rows = append(rows, *r)
		}
	}
	return rows, missing
}

// together makes the calls on all processors, and shows the progress.
func (a *app) together(what string, calls []func()) {
	step, end := a.progress(what)
	defer end()
	var all sync.WaitGroup
	var shown sync.Mutex
	done := 0
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, call := range calls {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			call()
			shown.Lock()
			defer shown.Unlock()
			done++
			step(done, len(calls))
		})
	}
	all.Wait()
}

// try fills in the row. Its reason is set if the kernel cannot be tried.
func (r *kernelRow) try(p *prober, k *registry.Kernel, op *fused.Op, types fused.Combination) {
	r.Kernel, r.Op, r.Device, r.Status = k.ID, op.Name, k.Device, kernelUnknown
	for _, input := range op.Inputs {
		r.Types = append(r.Types, op.TypeOf(input, types).String())
	}
	forms, wide := op.Examples(types, probeOpset), op.WideExamples(types, probeOpset)
	// Skip sites that only some devices of a kind run, or run with the precision wanted here.
	device := fused.Device(strings.ToLower(k.Device))
	rare := func(s fused.Site) bool { return !op.OnEvery(device, s) }
	forms, wide = slices.DeleteFunc(forms, rare), slices.DeleteFunc(wide, rare)
	if r.Forms = len(forms) + len(wide); p == nil || r.Forms == 0 {
		return
	}
	if r.Reason = p.lacks(op); r.Reason != "" {
		return
	}
	worst := 0.0
	for i, sites := range [][]fused.Site{forms, wide} {
		if len(sites) == 0 {
			continue
		}
		rel, err := p.tryForms(op, sites, i > 0)
		if err != nil {
			r.Status, r.Reason = kernelFails, err.Error()
			return
		}
		worst = max(worst, rel)
	}
	r.Status, r.Reason, r.MaxRel = kernelRuns, "", &worst
}

// firstLine shortens an error that lists the searched places.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ". Looked at:")
}

func writeKernels(w io.Writer, rows []kernelRow) {
	ofModel := len(rows) > 0 && rows[0].Nodes > 0
	t := newTable("kernel", "op", "types", "device", "here", ">forms", ">max rel", "")
	if ofModel {
		t = newTable("kernel", "op", "inputs", "device", "here", ">nodes", ">max rel", "")
	}
	away := map[string]string{}
	for _, r := range rows {
		rel, count, types := "", "", strings.Join(r.Types, ", ")
		if r.Forms > 0 {
			count = fmt.Sprint(r.Forms)
		}
		if ofModel {
			count, types = fmt.Sprint(r.Nodes), inputsText(r.Types, r.Shapes)
		}
		if r.MaxRel != nil {
			rel = fmt.Sprintf("%.2g", *r.MaxRel)
		}
		if r.away { // reported once for the device
			away[r.Device] = r.Reason
			r.Reason = ""
		}
		t.add(r.Kernel, r.Op, types, r.Device, r.Status, count, rel, r.Reason)
	}
	t.write(w)
	for _, device := range slices.Sorted(maps.Keys(away)) {
		if reason := away[device]; reason != "" {
			fmt.Fprintf(w, "the kernels for %s were not tried: %s\n", device, reason)
		}
	}
}
