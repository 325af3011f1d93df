package prober

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// KernelRow is an op with a combination of types on a device, and its JSON form.
type KernelRow struct {
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

	Away bool `json:"-"` // the reason holds for every kernel of the device
}

// The states of a kernel.
const (
	KernelRuns     = "runs"
	KernelFails    = "fails"
	KernelUnknown  = "unknown"
	KernelStandard = "standard"
)

// npuNotTried is the reason that kernels for CANN do not run here.
const npuNotTried = "they need an Ascend device, which this command does not look for (docs/kernels.md explains how " +
	"they are tested)"

// Probers run the kernels of each available device.
type Probers struct {
	cpu, cuda *Prober
	noCUDA    error
}

// NewProbers opens the available devices. missing is the reason if kernels cannot run on the CPU. If kernels for CUDA
// or an NPU cannot run, only their rows say why: most machines lack these devices.
func NewProbers(onnxruntime, lib string) (p *Probers, missing error) {
	p = &Probers{}
	p.cpu, missing = New(onnxruntime, lib, session.ProviderCPU)
	p.cuda, p.noCUDA = New(onnxruntime, lib, session.ProviderCUDA)
	return p, missing
}

// CloseAll closes the sessions of all devices.
func (p *Probers) CloseAll() {
	for _, one := range []*Prober{p.cpu, p.cuda} {
		if one != nil {
			one.Close()
		}
	}
}

// Of returns the prober for the kernels of a device, or the reason that they cannot run.
func (p *Probers) Of(device string) (*Prober, string) {
	switch {
	case strings.EqualFold(device, session.DeviceCUDA) && p.noCUDA != nil:
		return nil, cli.FirstLine(p.noCUDA)
	case strings.EqualFold(device, session.DeviceCUDA):
		return p.cuda, ""
	case strings.EqualFold(device, session.DeviceNPU):
		return nil, npuNotTried
	}
	return p.cpu, ""
}

// TryKernels runs every kernel. If kernels cannot run, missing is the reason. It is a variable because that takes
// long: tests of several commands keep the rows of one call.
var TryKernels = tryKernels

func tryKernels(a *cli.App, onnxruntime, lib string) (rows []KernelRow, missing error) {
	probers, missing := NewProbers(onnxruntime, lib)
	defer probers.CloseAll()
	var list []*KernelRow
	var tries []func()
	for _, k := range append(registry.ScanAllKernels(), registry.StoredKernels()...) {
		p, reason := probers.Of(k.Device)
		if len(k.Ops) == 0 {
			list = append(list, &KernelRow{Kernel: k.ID, Op: strings.Join(k.Patterns, ", "), Types: []string{},
				Device: k.Device, Status: KernelStandard, Reason: k.Summary})
		}
		for _, name := range k.Ops {
			op := fused.Lookup(name)
			if name == fused.QMoEName { // its definition leaves the rounding between its products open
				continue
			}
			for _, types := range op.Types {
				r := &KernelRow{Reason: reason, Away: p == nil}
				list = append(list, r)
				tries = append(tries, func() { r.try(p, k, op, types) })
			}
		}
	}
	together(a, "trying kernel", tries)
	for _, r := range list {
		if r.Forms > 0 || r.Status == KernelStandard { // otherwise no form of weights has these types
			rows = append(rows, *r)
		}
	}
	return rows, missing
}

// together makes the calls on all processors, and shows the progress.
func together(a *cli.App, what string, calls []func()) {
	step, end := a.Progress(what)
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
func (r *KernelRow) try(p *Prober, k *registry.Kernel, op *fused.Op, types fused.Combination) {
	r.Kernel, r.Op, r.Device, r.Status = k.ID, op.Name, k.Device, KernelUnknown
	for _, input := range op.Inputs {
		r.Types = append(r.Types, op.TypeOf(input, types).String())
	}
	forms, wide := op.Examples(types, ProbeOpset), op.WideExamples(types, ProbeOpset)
	// Skip sites that only some devices of a kind run, or run with the precision wanted here.
	device := fused.Device(strings.ToLower(k.Device))
	rare := func(s fused.Site) bool { return !op.OnEvery(device, s) }
	forms, wide = slices.DeleteFunc(forms, rare), slices.DeleteFunc(wide, rare)
	if r.Forms = len(forms) + len(wide); p == nil || r.Forms == 0 {
		return
	}
	if r.Reason = p.Lacks(op); r.Reason != "" {
		return
	}
	worst := 0.0
	for i, sites := range [][]fused.Site{forms, wide} {
		if len(sites) == 0 {
			continue
		}
		rel, err := p.TryForms(op, sites, i > 0)
		if err != nil {
			r.Status, r.Reason = KernelFails, err.Error()
			return
		}
		worst = max(worst, rel)
	}
	r.Status, r.Reason, r.MaxRel = KernelRuns, "", &worst
}
