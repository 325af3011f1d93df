package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/spf13/cobra"
)

// backend holds the flags that select the runtime, the provider and the kernels that run a model.
type backend struct {
	evaluator   bool
	kernels     string
	kernelsLib  string
	onnxruntime string
	optimize    string
	threads     int
	providerFlags
	devices deviceFlag
	cuda    map[string]string // more options of the CUDA provider
	// openModel opens a model at its path; nil for ort.Open.
	openModel func(*onnx.Model, ...ort.Option) (*ort.Session, error)
	// fallback runs a model in the evaluator if onnxruntime is not found. demand makes a missing kernel library an
	// error.
	fallback, demand bool
}

// The values of --kernels.
const (
	kernelsAuto = "auto"
	kernelsOn   = "on"
	kernelsOff  = "off"
)

func (b *backend) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&b.evaluator, "evaluator", false,
		"run in the built-in evaluator: slow, exact, every type, no onnxruntime; the same as --backend +REF")
	f.StringVar(&b.kernels, "kernels", kernelsAuto,
		"register the fused kernels with onnxruntime: auto (if the model uses them and they are found for the "+
			"provider), on, off")
	libraryFlags(c, &b.onnxruntime, &b.kernelsLib)
	f.StringVar(&b.optimize, "optimize", "all", "graph optimization level of onnxruntime: none, basic, extended or all")
	f.IntVar(&b.threads, "threads", 0, "threads inside one op (0: onnxruntime chooses)")
	b.runFlags(c, "(default: by the backend, cpu)")
	b.devices.flags(c, "devices to run on")
	completeValues(c, "kernels", kernelModes, false)
	completeValues(c, "optimize", func() []string { return []string{"none", "basic", "extended", "all"} }, false)
}

func libraryFlags(c *cobra.Command, onnxruntime, kernels *string) {
	c.Flags().StringVar(kernels, "kernels-lib", "",
		"the kernel library or its folder (default: $MOJO_OPS_LIBRARY, beside the program, or where pip installed it)")
	c.Flags().StringVar(onnxruntime, "onnxruntime", "",
		"the onnxruntime library or its folder (default: $ONNXRUNTIME_LIB, active Python environment, cache folder)")
	completeFile(c, "kernels-lib", libraryExtensions...)
	completeFile(c, "onnxruntime", libraryExtensions...)
}

var libraryExtensions = []string{"so", "dylib", "dll"}

func (b *backend) check(c *cobra.Command) error {
	switch b.kernels {
	case kernelsAuto, kernelsOn, kernelsOff:
	default:
		return fmt.Errorf("--kernels %q: must be auto, on or off", b.kernels)
	}
	if _, err := ort.ParseOptimization(b.optimize); err != nil {
		return fmt.Errorf("--optimize: %w", err)
	}
	if b.threads < 0 {
		return fmt.Errorf("--threads %d: must be 1 or more, or 0 to let onnxruntime choose", b.threads)
	}
	if b.evaluator && b.devices.given != nil {
		return fmt.Errorf("--evaluator means --backend +REF: it cannot be combined with --backend")
	}
	if !b.evaluator {
		if err := b.checkProvider(false); err != nil {
			return err
		}
	}
	if err := b.place(); err != nil {
		return err
	}
	if b.evaluator {
		for _, other := range []string{"kernels", "kernels-lib", "onnxruntime", "optimize", "threads", "provider",
			"provider-option", "provider-library", "provider-device", "provider-only"} {
			if c.Flags().Changed(other) {
				return fmt.Errorf("--%s sets an option of onnxruntime: it cannot be combined with --evaluator, or "+
					"with %s first in the backend", other, registry.DeviceREF)
			}
		}
	}
	return nil
}

// place selects the provider: the one of --provider, or else that for the first usable device of the backend.
func (b *backend) place() error {
	if b.evaluator {
		return nil
	}
	chosen, err := b.devices.backend()
	if err != nil {
		return err
	}
	if b.provider != "" {
		return nil
	}
	b.provider = providerOf(chosen)
	for _, d := range chosen.Devices() {
		switch {
		case d == registry.DeviceREF:
			b.evaluator = true
			return nil
		case strings.EqualFold(d, b.provider):
			b.demand, b.fallback = chosen.Names(d), !chosen.Names(d) && chosen.Names(registry.DeviceREF)
			return nil
		}
	}
	return environment(fmt.Errorf("no device of the backend %s can run a model here: %s, %s by its name, and %s can",
		chosen, deviceCPU, deviceCUDA, registry.DeviceREF))
}

// runner is an opened model.
type runner interface {
	Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error)
	Close() error
}

// open opens the model at m.Path. It also returns a short description of the runtime.
func (b *backend) open(a *app, m *onnx.Model) (runner, string, error) {
	if b.evaluator {
		e, err := reference.New(m, reference.Options{})
		if err != nil {
			return nil, "", failed(fmt.Errorf("%s: %w", m.Path, err))
		}
		return &evaluated{m, e}, "built-in evaluator", nil
	}
	lib, err := ort.Find(b.onnxruntime)
	if err != nil && b.fallback {
		a.say("onnxruntime was not found: the built-in evaluator runs %s", m.Path)
		b.evaluator = true
		return b.open(a, m)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w\n(use --evaluator to run the model without onnxruntime)", err)
	}
	return b.session(a, m, lib)
}

// session opens the model in onnxruntime, and returns a short description of the runtime. The options in more follow
// those of the flags.
func (b *backend) session(a *app, m *onnx.Model, lib ort.Library, more ...ort.Option) (*ort.Session, string, error) {
	level, err := ort.ParseOptimization(b.optimize)
	if err != nil {
		return nil, "", err
	}
	options := []ort.Option{ort.WithLibrary(lib.Path), ort.WithOptimization(level), ort.WithThreads(b.threads)}
	what := "onnxruntime " + lib.Version
	provider, err := b.sessionOptions(b.cuda)
	if err != nil {
		return nil, "", err
	}
	options = append(options, provider...)
	if b.provider != providerCPU {
		what += " on " + b.provider
	}
	path, err := b.library(a, m)
	if err != nil {
		return nil, "", err
	}
	if path != "" {
		options = append(options, ort.WithKernelLibrary(path))
		what += " with kernels"
	}
	open := b.openModel
	if open == nil {
		open = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) { return ort.Open(m.Path, options...) }
	}
	session, err := open(m, append(options, more...)...)
	if err != nil {
		return nil, "", refusal(err)
	}
	b.placed(a, session, m.Path)
	return session, what, nil
}

// refusal classifies why onnxruntime did not open a model. It looks at the message because error codes do not tell
// these cases apart.
func refusal(err error) error {
	switch text := err.Error(); {
	case errors.Is(err, ort.ErrNoLibrary):
		return err
	case strings.Contains(text, "cannot register the kernels"), errProvider(err):
		return environment(err)
	case strings.Contains(text, "fallback to CPU EP has been explicitly disabled"):
		return failed(fmt.Errorf("%w\n(to list the ops that are left to the CPU, use -v without --provider-only)", err))
	case strings.Contains(text, "Could not find an implementation"):
		return failed(fmt.Errorf("%w\n(use --evaluator to run types and ops that onnxruntime's CPU provider "+
			"lacks)", err))
	}
	return failed(err)
}

func (b *backend) library(a *app, m *onnx.Model) (string, error) {
	if b.kernels == kernelsOff {
		if text := widening(m); text != "" {
			a.say("without kernels the function bodies of %s run%s", m.Path, text)
		}
		return "", nil
	}
	if b.kernels == kernelsAuto && m.Opset(fused.Domain) == 0 {
		return "", nil
	}
	if err := pass.CheckDomain(m); err != nil {
		return "", failed(fmt.Errorf("%s: %w, or use --kernels off to run the function", m.Path, err))
	}
	device, known := kernelDevices[b.provider]
	switch {
	case known:
	case b.kernels == kernelsOn || b.kernelsLib != "":
		device = fused.CPU
	default:
		a.detail("%s has no kernels: the function bodies of %s run", b.provider, m.Path)
		return "", nil
	}
	path, err := device.FindLibrary(b.kernelsLib)
	if err != nil && (b.kernels == kernelsOn || b.kernelsLib != "" || b.demand) {
		return "", err
	}
	if err != nil {
		a.say("%s uses fused ops, but the kernel library was not found: the function bodies run instead%s", m.Path,
			widening(m))
		a.detail("%s (run mojo-patch doctor for details)", firstLine(err))
		return "", nil
	}
	return path, nil
}

type evaluated struct {
	model *onnx.Model
	e     *reference.Evaluator
}

func (r *evaluated) Close() error { return nil }

func (r *evaluated) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	out, err := r.e.RunTensors(inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.model.Path, err)
	}
	return out, nil
}
