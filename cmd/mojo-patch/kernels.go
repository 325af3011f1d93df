package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// kernelRow is one op, combination of types and device, and its JSON form.
type kernelRow struct {
	Kernel string   `json:"kernel"`
	Op     string   `json:"op"`
	Types  []string `json:"types"`
	Device string   `json:"device"`
	// Forms is how many combinations of attributes and optional inputs are tried.
	Forms int `json:"forms"`
	// Status is "runs", "fails", "unknown" where it cannot be tried here, or "standard" where it is onnxruntime's own.
	Status string `json:"status"`
	// MaxRel is the difference from the op's definition, as a part of the greatest magnitude.
	MaxRel *float64 `json:"max_rel,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// The states of a kernel.
const (
	kernelRuns     = "runs"
	kernelFails    = "fails"
	kernelUnknown  = "unknown"
	kernelStandard = "standard"
)

func newKernels(a *app) *cobra.Command {
	var lib, onnxruntime string
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels by op, type and device, and try each here",
		Long: `kernels lists every kernel with the ops, types and devices it serves. Where onnxruntime and the
kernel library are found, it runs each kernel on the hard inputs that apply checks sites with (small,
large, tiny, zero, one-hot, repeated; for attention paddings), in every form that its attributes
allow, and compares it with the op's definition. It exits with 1 if one fails, and with 4 if there is
nothing to try them with. Ops of the standard need no library and are not tried.

` + devicesHelp,
		Example: `  mojo-patch kernels
  mojo-patch kernels --kernels-lib build/libmojo_ops.so --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			rows, missing := tryKernels(onnxruntime, lib)
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
	a.jsonFlag(c, "kernels")
	return c
}

// npuNotTried is why the kernels for CANN are not run here.
const npuNotTried = "they need an Ascend device, which this command does not look for (docs/kernels.md says how they " +
	"are tested)"

// tryKernels runs every kernel there is, if it can; missing says what it lacks to do so. What CUDA's kernels lack is
// the reason of their rows alone: most machines have no GPU. So is what the kernels for an NPU lack.
func tryKernels(onnxruntime, lib string) (rows []kernelRow, missing error) {
	cpu, missing := newProber(onnxruntime, lib, providerCPU)
	if cpu != nil {
		defer cpu.close()
	}
	cuda, noCUDA := newProber(onnxruntime, lib, providerCUDA)
	if cuda != nil {
		defer cuda.close()
	}
	var tries sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var list []*kernelRow
	for _, k := range append(rewrite.ScanAllKernels(), rewrite.StoredKernels()...) {
		p, reason := cpu, ""
		switch {
		case strings.EqualFold(k.Device, deviceCUDA):
			if p = cuda; noCUDA != nil {
				reason = firstLine(noCUDA)
			}
		case strings.EqualFold(k.Device, deviceNPU):
			p, reason = nil, npuNotTried
		}
		if len(k.Ops) == 0 {
			list = append(list, &kernelRow{Kernel: k.ID, Op: strings.Join(k.Patterns, ", "), Types: []string{},
				Device: k.Device, Status: kernelStandard, Reason: k.Summary})
		}
		for _, name := range k.Ops {
			op := fused.Lookup(name)
			if name == "QMoE" { // what it rounds between its products is open where it is next to a half
				continue
			}
			for _, types := range op.Types {
				r := &kernelRow{Reason: reason}
				list = append(list, r)
				free <- struct{}{}
				tries.Go(func() {
					defer func() { <-free }()
					r.try(p, k, op, types)
				})
			}
		}
	}
	tries.Wait()
	for _, r := range list {
		if r.Forms > 0 || r.Status == kernelStandard { // else types that go with no form of weights
			rows = append(rows, *r)
		}
	}
	return rows, missing
}

// try fills the row. Its reason is why the kernel cannot be tried, if it cannot.
func (r *kernelRow) try(p *prober, k *rewrite.Kernel, op *fused.Op, types fused.Combination) {
	r.Kernel, r.Op, r.Device, r.Status = k.ID, op.Name, k.Device, kernelUnknown
	for _, input := range op.Inputs {
		r.Types = append(r.Types, op.TypeOf(input, types).String())
	}
	forms := op.Examples(types, probeOpset)
	// What some devices of a kind alone run is not looked for, nor is what they give as exact as this command wants it.
	device := fused.Device(strings.ToLower(k.Device))
	forms = slices.DeleteFunc(forms, func(s fused.Site) bool { return !op.OnEvery(device, s) })
	if r.Forms = len(forms); p == nil || r.Forms == 0 {
		return
	}
	rel, err := p.tryForms(op, forms)
	if err != nil {
		r.Status, r.Reason = kernelFails, err.Error()
		return
	}
	r.Status, r.Reason, r.MaxRel = kernelRuns, "", &rel
}

// firstLine shortens an error that lists where was looked.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ". Looked at:")
}

func writeKernels(w io.Writer, rows []kernelRow) {
	t := newTable("kernel", "op", "types", "device", "here", ">forms", ">max rel", "")
	unknown := map[string]string{}
	for _, r := range rows {
		rel, forms := "", ""
		if r.Forms > 0 {
			forms = fmt.Sprint(r.Forms)
		}
		if r.MaxRel != nil {
			rel = fmt.Sprintf("%.2g", *r.MaxRel)
		}
		if r.Status == kernelUnknown { // once for all rows of the device
			unknown[r.Device] = r.Reason
			r.Reason = ""
		}
		t.add(r.Kernel, r.Op, strings.Join(r.Types, ", "), r.Device, r.Status, forms, rel, r.Reason)
	}
	t.write(w)
	for _, device := range slices.Sorted(maps.Keys(unknown)) {
		if reason := unknown[device]; reason != "" {
			fmt.Fprintf(w, "the kernels for %s were not tried: %s\n", device, reason)
		}
	}
}
