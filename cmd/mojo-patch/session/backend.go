// Package session opens models as the flags for the runtime, the provider, the devices and the kernels say.
package session

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/launch"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/spf13/cobra"
)

// Backend holds the flags that select the runtime, the provider and the kernels that run a model.
type Backend struct {
	Evaluator   bool   // --evaluator
	Kernels     string // --kernels
	KernelsLib  string // --kernels-lib
	Onnxruntime string // --onnxruntime
	Optimize    string // --optimize
	threads     int
	products    string // --products
	ProviderFlags
	Devices DeviceFlag        // --backend
	CUDA    map[string]string // more options of the CUDA provider
	// OpenModel opens a model at its path; nil for ort.Open.
	OpenModel func(*onnx.Model, ...ort.Option) (*ort.Session, error)
	// RuntimeOnly says that the command runs models only in onnxruntime, so no message advises --evaluator.
	RuntimeOnly bool
	// Fallback runs a model in the evaluator if onnxruntime is not found. demand makes a missing kernel library an
	// error.
	Fallback, demand bool
	noted            bool            // that the environment's onnxruntime is too old
	place            *launch.Process // nil if no model is a rank's
	ranked           bool            // this process is one of several ranks, and a model is a folder or missing
}

// The values of --kernels.
const (
	KernelsAuto = "auto"
	KernelsOn   = "on"
	KernelsOff  = "off"
)

// productModes are the values of --products, and of the variable that the CPU kernels read when a session opens.
var productModes = []string{"exact", "bfloat16"}

const productsVariable = "MOJO_CPU_PRODUCTS"

// AddTo adds the flags to a command.
func (b *Backend) AddTo(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&b.Evaluator, "evaluator", false,
		"run in the built-in evaluator: slow, exact, every type, no onnxruntime; the same as --backend +REF")
	f.StringVar(&b.Kernels, "kernels", KernelsAuto,
		"register the fused kernels with onnxruntime: auto (if the model uses them and they are found for the "+
			"provider), on, off")
	LibraryFlags(c, &b.Onnxruntime, &b.KernelsLib)
	f.StringVar(&b.Optimize, "optimize", "all", "graph optimization level of onnxruntime: none, basic, extended or all")
	f.IntVar(&b.threads, "threads", 0, "threads inside one op (0: onnxruntime chooses)")
	f.StringVar(&b.products, "products", "",
		"bfloat16 weights on the CPU: exact products, or with bfloat16 activations (tokens may change)")
	b.runFlags(c, "(default: by the backend, cpu)")
	b.Devices.AddTo(c, "devices to run on")
	cli.CompleteValues(c, "kernels", KernelModes, false)
	cli.CompleteValues(c, "products", func() []string { return productModes }, false)
	cli.CompleteValues(c, "optimize", func() []string { return []string{"none", "basic", "extended", "all"} }, false)
}

// LibraryFlags adds --onnxruntime and --kernels-lib to a command.
func LibraryFlags(c *cobra.Command, onnxruntime, kernels *string) {
	c.Flags().StringVar(kernels, "kernels-lib", "",
		"the kernel library or its folder (default: $MOJO_OPS_LIBRARY, beside the program, or where pip installed it)")
	c.Flags().StringVar(onnxruntime, "onnxruntime", "",
		"the onnxruntime library or its folder (default: $ONNXRUNTIME_LIB, active Python environment, cache folder)")
	cli.CompleteFile(c, "kernels-lib", LibraryExtensions...)
	cli.CompleteFile(c, "onnxruntime", LibraryExtensions...)
}

// LibraryExtensions are the extensions of shared libraries on all systems, for completion.
var LibraryExtensions = []string{"so", "dylib", "dll"}

// Check returns an error if flags conflict or have wrong values, and chooses the provider by the devices.
func (b *Backend) Check(c *cobra.Command) error {
	switch b.Kernels {
	case KernelsAuto, KernelsOn, KernelsOff:
	default:
		return fmt.Errorf("--kernels %q: must be auto, on or off", b.Kernels)
	}
	if _, err := ort.ParseOptimization(b.Optimize); err != nil {
		return fmt.Errorf("--optimize: %w", err)
	}
	if b.products != "" && !slices.Contains(productModes, b.products) {
		return fmt.Errorf("--products %q: must be %s", b.products, strings.Join(productModes, " or "))
	}
	if b.threads < 0 {
		return fmt.Errorf("--threads %d: must be 1 or more, or 0 to let onnxruntime choose", b.threads)
	}
	if b.Evaluator && b.Devices.given != nil {
		return fmt.Errorf("--evaluator means --backend +REF: it cannot be combined with --backend")
	}
	if !b.Evaluator {
		if err := b.CheckProvider(false); err != nil {
			return err
		}
	}
	if err := b.Place(); err != nil {
		return err
	}
	if b.Evaluator {
		for _, other := range []string{"kernels", "kernels-lib", "onnxruntime", "optimize", "threads", "products",
			"provider", "provider-option", "provider-library", "provider-device", "provider-only"} {
			if c.Flags().Changed(other) {
				return fmt.Errorf("--%s sets an option of onnxruntime: it cannot be combined with --evaluator, or "+
					"with %s first in the backend", other, registry.DeviceREF)
			}
		}
	}
	b.begin()
	return nil
}

// Place selects the provider: the one of --provider, or else that for the first usable device of the backend.
func (b *Backend) Place() error {
	if b.Evaluator {
		return nil
	}
	chosen, err := b.Devices.Backend()
	if err != nil {
		return err
	}
	if b.Provider != "" {
		return nil
	}
	b.Provider = ProviderOf(chosen)
	for _, d := range chosen.Devices() {
		switch {
		case d == registry.DeviceREF:
			b.Evaluator = true
			return nil
		case strings.EqualFold(d, b.Provider):
			b.demand, b.Fallback = chosen.Names(d), !chosen.Names(d) && chosen.Names(registry.DeviceREF)
			return nil
		}
	}
	return cli.Environment(fmt.Errorf(
		"no device of the backend %s can run a model here: %s, %s by its name, and %s can",
		chosen, DeviceCPU, DeviceCUDA, registry.DeviceREF))
}

// Runner is an opened model.
type Runner interface {
	Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error)
	Close() error
}

// Open opens the model at m.Path. It also returns a short description of the runtime.
func (b *Backend) Open(a *cli.App, m *onnx.Model) (Runner, string, error) {
	if b.Evaluator {
		e, err := reference.New(m, reference.Options{})
		if err != nil {
			return nil, "", cli.Failed(fmt.Errorf("%s: %w", m.Path, err))
		}
		return &evaluated{m, e}, "built-in evaluator", nil
	}
	lib, err := ort.Find(b.Onnxruntime)
	if err != nil && b.Fallback {
		a.Say("onnxruntime was not found: the built-in evaluator runs %s", m.Path)
		b.Evaluator = true
		return b.Open(a, m)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w\n(use --evaluator to run the model without onnxruntime)", err)
	}
	return b.Session(a, m, lib)
}

// Session opens the model in onnxruntime, and returns a short description of the runtime. The options in more follow
// those of the flags.
func (b *Backend) Session(a *cli.App, m *onnx.Model, lib ort.Library, more ...ort.Option) (*ort.Session, string,
	error) {
	level, err := ort.ParseOptimization(b.Optimize)
	if err != nil {
		return nil, "", err
	}
	options := []ort.Option{ort.WithLibrary(lib.Path), ort.WithOptimization(level), ort.WithThreads(b.threads)}
	if lib.Older != "" && !b.noted {
		a.Say("note: onnxruntime %s runs the model (%s): %s", lib.Version, lib.Source, lib.Older)
		b.noted = true
	}
	what := "onnxruntime " + lib.Version
	provider, err := b.sessionOptions()
	if err != nil {
		return nil, "", err
	}
	options = append(options, provider...)
	if b.Provider != ProviderCPU {
		what += " on " + b.Provider
	}
	path, err := b.library(a, m)
	if err != nil {
		return nil, "", err
	}
	if path != "" {
		options = append(options, ort.WithKernelLibrary(path))
		what += " with kernels"
	}
	open := b.OpenModel
	if open == nil {
		open = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) { return ort.Open(m.Path, options...) }
	}
	if b.products != "" {
		if before, set := os.LookupEnv(productsVariable); set {
			defer os.Setenv(productsVariable, before)
		} else {
			defer os.Unsetenv(productsVariable)
		}
		os.Setenv(productsVariable, b.products)
		what += ", products " + b.products
	}
	session, err := open(m, append(options, more...)...)
	if err != nil {
		return nil, "", b.refusal(err)
	}
	b.placed(a, session, m.Path)
	return session, what, nil
}

// refusal classifies why onnxruntime did not open a model. It looks at the message because error codes do not tell
// these cases apart.
func (b *Backend) refusal(err error) error {
	switch text := err.Error(); {
	case errors.Is(err, ort.ErrNoLibrary):
		return err
	case strings.Contains(text, "cannot register the kernels"), errProvider(err):
		return cli.Environment(err)
	case strings.Contains(text, "fallback to CPU EP has been explicitly disabled"):
		return cli.Failed(fmt.Errorf("%w\n(to list the ops that are left to the CPU, use -v without --provider-only)",
			err))
	case strings.Contains(text, "Could not find an implementation") && b.RuntimeOnly:
		return cli.Failed(fmt.Errorf("%w\n(onnxruntime's CPU provider lacks this op or its type: convert the model "+
			"with mojo-patch apply --dtype float32, or choose another --provider)", err))
	case strings.Contains(text, "Could not find an implementation"):
		return cli.Failed(fmt.Errorf("%w\n(use --evaluator to run types and ops that onnxruntime's CPU provider "+
			"lacks)", err))
	}
	return cli.Failed(err)
}

func (b *Backend) library(a *cli.App, m *onnx.Model) (string, error) {
	if b.Kernels == KernelsOff {
		if text := widening(m); text != "" {
			a.Say("without kernels the function bodies of %s run%s", m.Path, text)
		}
		return "", nil
	}
	if b.Kernels == KernelsAuto && m.Opset(fused.Domain) == 0 {
		return "", nil
	}
	if err := pass.CheckDomain(m); err != nil {
		return "", cli.Failed(fmt.Errorf("%s: %w, or use --kernels off to run the function", m.Path, err))
	}
	device, known := KernelDevices[b.Provider]
	switch {
	case known:
	case b.Kernels == KernelsOn || b.KernelsLib != "":
		device = fused.CPU
	default:
		a.Detail("%s has no kernels: the function bodies of %s run", b.Provider, m.Path)
		return "", nil
	}
	path, err := device.FindLibrary(b.KernelsLib)
	if err != nil && (b.Kernels == KernelsOn || b.KernelsLib != "" || b.demand) {
		return "", err
	}
	if err != nil {
		a.Say("%s uses fused ops, but the kernel library was not found: the function bodies run instead%s", m.Path,
			widening(m))
		a.Detail("%s (run mojo-patch doctor for details)", cli.FirstLine(err))
		return "", nil
	}
	return path, nil
}

type evaluated struct {
	model *onnx.Model
	e     *reference.Evaluator
}

// Close does nothing.
func (r *evaluated) Close() error { return nil }

// Run evaluates the model on the inputs.
func (r *evaluated) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	out, err := r.e.RunTensors(inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.model.Path, err)
	}
	return out, nil
}

func completeBackend(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if typed == "" {
		typed = "+"
	}
	return cli.Next(typed, "+,", append([]string{registry.AllDevices}, registry.KnownDevices()...)),
		cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// KernelModes lists the values of --kernels.
func KernelModes() []string { return []string{KernelsAuto, KernelsOn, KernelsOff} }
