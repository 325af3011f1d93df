package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/spf13/cobra"
)

const providersHelp = `--provider NAME runs on any execution provider of onnxruntime, and on the CPU's for other nodes: a
provider built into onnxruntime (cuda, cann, xnnpack, …), or one of a plugin library (qnn,
openvino). Names are onnxruntime's, such as QNNExecutionProvider, or shorter ones in any case.
Plugin libraries are found beside onnxruntime, in Python packages and by --provider-library.
--provider-option KEY=VALUE, or KEY=VALUE after the models, sets an option of the provider. The
kernels are for cpu, cuda and cann: on other providers fused ops run as their function bodies, unless
--kernels on or --kernels-lib is given. mojo-patch doctor lists the providers.`

// The providers with kernels, by the names that ort.ShortProvider returns.
const (
	providerCPU  = deviceCPU
	providerCUDA = deviceCUDA
	providerCANN = "CANN"
)

// kernelDevices maps providers to the devices of their kernels.
var kernelDevices = map[string]fused.Device{
	providerCPU: fused.CPU, providerCUDA: fused.CUDA, providerCANN: fused.NPU,
}

// cudaOption makes a session run on CUDA, with more options of the provider. Products of float32 are computed in
// float32: by default onnxruntime uses TF32, with 10 bits of mantissa.
func cudaOption(more map[string]string) ort.Option {
	options := map[string]string{"use_tf32": "0"}
	maps.Copy(options, more)
	return ort.WithProvider(providerCUDA, options)
}

type providerFlags struct {
	provider  string
	given     []string // options, KEY=VALUE
	libraries []string
	device    string
	only      bool
}

func (f *providerFlags) runFlags(c *cobra.Command, standard string) {
	f.nameFlags(c, standard)
	c.Flags().BoolVar(&f.only, "provider-only", false, "fail if --provider would leave a node to the CPU's provider")
}

func (f *providerFlags) nameFlags(c *cobra.Command, standard string) {
	flags := c.Flags()
	flags.StringVar(&f.provider, "provider", "", "onnxruntime's execution provider: cpu, cuda, qnn, openvino, … "+
		standard)
	flags.StringArrayVar(&f.given, "provider-option", nil, "KEY=VALUE: an option of --provider; repeatable")
	flags.StringArrayVar(&f.libraries, "provider-library", nil,
		"a plugin library that brings --provider, or its folder; repeatable (default: $"+ort.ProviderLibraryVariable+
			", beside onnxruntime, Python packages)")
	flags.StringVar(&f.device, "provider-device", "",
		"the type of device that a plugin's provider uses: cpu, gpu or npu (default: all it offers)")
	completeValues(c, "provider", func() []string {
		names := ort.KnownProviders()
		for i, n := range names {
			names[i] = strings.ToLower(n)
		}
		return names
	}, false)
	completeValues(c, "provider-device", func() []string { return []string{"cpu", "gpu", "npu"} }, false)
	completeFile(c, "provider-library", libraryExtensions...)
}

// optionArgument matches an option among the arguments. An existing file is never an option.
var optionArgument = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*=`)

// split separates the provider's options after the first arguments from the rest. Without --provider there are none.
func (f *providerFlags) split(args []string, first int) (rest, options []string) {
	for i, arg := range args {
		if i >= first && f.provider != "" && (first == 0 || !ort.SameProvider(f.provider, providerCPU)) &&
			optionArgument.MatchString(arg) {
			if _, err := os.Stat(arg); err != nil {
				options = append(options, arg)
				continue
			}
		}
		rest = append(rest, arg)
	}
	return rest, options
}

// modelArgs requires between least and most models, and takes options of the provider after the first one.
func (f *providerFlags) modelArgs(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		models, _ := f.split(args, 1)
		return modelArgs(least, most)(c, models)
	}
}

// take removes the options from the arguments and returns the rest.
func (f *providerFlags) take(args []string, first int) []string {
	rest, options := f.split(args, first)
	f.given = append(f.given, options...)
	return rest
}

func (f *providerFlags) options() (map[string]string, error) {
	options := map[string]string{}
	for _, o := range f.given {
		key, value, ok := strings.Cut(o, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--provider-option %q: write KEY=VALUE", o)
		}
		if _, exists := options[key]; exists {
			return nil, fmt.Errorf("the provider's option %s is set twice", key)
		}
		options[key] = value
	}
	return options, nil
}

// checkProvider returns an error if flags contradict each other or lack --provider, which a command that lists
// providers does not need. It shortens the provider's name.
func (f *providerFlags) checkProvider(lists bool) error {
	if f.provider != "" {
		f.provider = ort.ShortProvider(f.provider)
	}
	options, err := f.options()
	if err != nil {
		return err
	}
	if f.device != "" && !slices.Contains([]string{"cpu", "gpu", "npu"}, strings.ToLower(f.device)) {
		return fmt.Errorf("--provider-device %q: must be cpu, gpu or npu", f.device)
	}
	if f.provider != "" && f.provider != providerCPU {
		return nil
	}
	for _, about := range []struct {
		flag  string
		given bool
	}{{"option", len(options) > 0}, {"library", len(f.libraries) > 0 && !lists}, {"device", f.device != ""},
		{"only", f.only}} {
		if about.given && f.provider == providerCPU {
			return fmt.Errorf("--provider-%s requires a --provider other than the CPU", about.flag)
		}
		if about.given {
			return fmt.Errorf("--provider-%s requires --provider", about.flag)
		}
	}
	return nil
}

// sessionOptions returns the options that open a session on the provider, with more options for CUDA.
func (f *providerFlags) sessionOptions(cuda map[string]string) ([]ort.Option, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	if f.provider == providerCPU {
		return nil, nil
	}
	list := []ort.Option{ort.WithProviderDevice(f.device), ort.WithPlacement()}
	for _, path := range f.libraries {
		list = append(list, ort.WithProviderLibrary(path))
	}
	if f.only {
		list = append(list, ort.WithConfig("session.disable_cpu_ep_fallback", "1"))
	}
	if f.provider != providerCUDA {
		return append(list, ort.WithProvider(f.provider, options)), nil
	}
	for key := range cuda {
		if _, given := options[key]; given {
			return nil, fmt.Errorf("the provider's option %s is set twice", key)
		}
	}
	maps.Copy(options, cuda)
	return append(list, cudaOption(options)), nil
}

// placed reports how many nodes the provider runs, since onnxruntime silently runs the others on the CPU. Under
// --verbose it lists those.
func (f *providerFlags) placed(a *app, s *ort.Session, path string) {
	if f.provider == providerCPU {
		return
	}
	nodes, err := s.Placement()
	if err != nil {
		a.detail("%v", err)
		return
	}
	on := 0
	others := map[string]int{}
	for _, n := range nodes {
		if ort.SameProvider(n.Provider, f.provider) {
			on++
		} else {
			others[n.Op]++
		}
	}
	var left []string
	for _, op := range slices.Sorted(maps.Keys(others)) {
		left = append(left, fmt.Sprintf("%d %s", others[op], op))
	}
	a.say("%s runs %d of %s of %s", f.provider, on, counted(len(nodes), "node"), path)
	if len(left) > 0 {
		a.detail("left to the CPU: %s", strings.Join(left, ", "))
	}
}

// errProvider reports whether an error is about a missing provider or a wrong option of it.
func errProvider(err error) bool {
	text := err.Error()
	return errors.Is(err, ort.ErrNoProvider) || strings.Contains(text, "execution provider ") ||
		strings.Contains(text, "Error creating execution provider")
}
