package session

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/spf13/cobra"
)

// ProvidersHelp is the help about --provider.
const ProvidersHelp = `--provider NAME runs on any execution provider of onnxruntime, and on the CPU's for other nodes: a
provider built into onnxruntime (cuda, cann, xnnpack, …), or one of a plugin library (qnn,
openvino). Names are onnxruntime's, such as QNNExecutionProvider, or shorter ones in any case.
Plugin libraries are found beside onnxruntime, in Python packages and by --provider-library.
--provider-option KEY=VALUE, or KEY=VALUE after the models, sets an option of the provider. The
kernels are for cpu, cuda and cann: on other providers fused ops run as their function bodies, unless
--kernels on or --kernels-lib is given. mojo-patch doctor lists the providers.`

// The providers with kernels, by the names that providers.Short returns.
const (
	ProviderCPU  = DeviceCPU
	ProviderCUDA = DeviceCUDA
	providerCANN = "CANN"
)

// KernelDevices maps providers to the devices of their kernels.
var KernelDevices = map[string]fused.Device{
	ProviderCPU: fused.CPU, ProviderCUDA: fused.CUDA, providerCANN: fused.NPU,
}

// CUDAOption makes a session run on CUDA, with more options of the provider. Products of float32 are computed in
// float32: by default onnxruntime uses TF32, with 10 bits of mantissa.
func CUDAOption(more map[string]string) ort.Option {
	options := map[string]string{"use_tf32": "0"}
	maps.Copy(options, more)
	return ort.WithProvider(ProviderCUDA, options)
}

// ProviderFlags choose the execution provider of onnxruntime and its options.
type ProviderFlags struct {
	Provider  string   // as providers.Short returns it, after CheckProvider
	given     []string // options, KEY=VALUE
	Libraries []string // of plugins
	Device    string   // the type of device, or ""
	Only      bool     // leave no node to the CPU
}

func (f *ProviderFlags) runFlags(c *cobra.Command, standard string) {
	f.NameFlags(c, standard)
	c.Flags().BoolVar(&f.Only, "provider-only", false, "fail if --provider would leave a node to the CPU's provider")
}

// NameFlags adds the flags that name the provider. standard is the default in the help.
func (f *ProviderFlags) NameFlags(c *cobra.Command, standard string) {
	flags := c.Flags()
	flags.StringVar(&f.Provider, "provider", "", "onnxruntime's execution provider: cpu, cuda, qnn, openvino, … "+
		standard)
	flags.StringArrayVar(&f.given, "provider-option", nil, "KEY=VALUE: an option of --provider; repeatable")
	flags.StringArrayVar(&f.Libraries, "provider-library", nil,
		"a plugin library that brings --provider, or its folder; repeatable (default: $"+providers.LibraryVariable+
			", beside onnxruntime, Python packages)")
	flags.StringVar(&f.Device, "provider-device", "",
		"the type of device that a plugin's provider uses: cpu, gpu or npu (default: all it offers)")
	cli.CompleteValues(c, "provider", func() []string {
		names := providers.Known()
		for i, n := range names {
			names[i] = strings.ToLower(n)
		}
		return names
	}, false)
	cli.CompleteValues(c, "provider-device", func() []string { return []string{"cpu", "gpu", "npu"} }, false)
	cli.CompleteFile(c, "provider-library", LibraryExtensions...)
}

// Split separates the provider's options after the first arguments from the rest. Without --provider there are none.
func (f *ProviderFlags) Split(args []string, first int) (rest, options []string) {
	for i, arg := range args {
		if i >= first && f.Provider != "" && (first == 0 || !providers.Same(f.Provider, ProviderCPU)) &&
			cli.OptionArgument.MatchString(arg) {
			if _, err := os.Stat(arg); err != nil {
				options = append(options, arg)
				continue
			}
		}
		rest = append(rest, arg)
	}
	return rest, options
}

// ModelArgs requires between least and most models, and takes options of the provider after the first one.
func (f *ProviderFlags) ModelArgs(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		models, _ := f.Split(args, 1)
		return cli.ModelArgs(least, most)(c, models)
	}
}

// Take removes the options from the arguments and returns the rest.
func (f *ProviderFlags) Take(args []string, first int) []string {
	rest, options := f.Split(args, first)
	f.given = append(f.given, options...)
	return rest
}

// Options returns the options of the provider by key.
func (f *ProviderFlags) Options() (map[string]string, error) {
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

// CheckProvider returns an error if flags contradict each other or lack --provider, which a command that lists
// providers does not need. It shortens the provider's name.
func (f *ProviderFlags) CheckProvider(lists bool) error {
	if f.Provider != "" {
		f.Provider = providers.Short(f.Provider)
	}
	options, err := f.Options()
	if err != nil {
		return err
	}
	if f.Device != "" && !slices.Contains([]string{"cpu", "gpu", "npu"}, strings.ToLower(f.Device)) {
		return fmt.Errorf("--provider-device %q: must be cpu, gpu or npu", f.Device)
	}
	if f.Provider != "" && f.Provider != ProviderCPU {
		return nil
	}
	for _, about := range []struct {
		flag  string
		given bool
	}{{"option", len(options) > 0}, {"library", len(f.Libraries) > 0 && !lists}, {"device", f.Device != ""},
		{"only", f.Only}} {
		if about.given && f.Provider == ProviderCPU {
			return fmt.Errorf("--provider-%s requires a --provider other than the CPU", about.flag)
		}
		if about.given {
			return fmt.Errorf("--provider-%s requires --provider", about.flag)
		}
	}
	return nil
}

// sessionOptions returns the options that open a session on the provider.
func (f *Backend) sessionOptions() ([]ort.Option, error) {
	options, err := f.Options()
	if err != nil {
		return nil, err
	}
	if f.Provider == ProviderCPU {
		return nil, nil
	}
	list := []ort.Option{ort.WithProviderDevice(f.Device), ort.WithPlacement()}
	for _, path := range f.Libraries {
		list = append(list, ort.WithProviderLibrary(path))
	}
	if f.Only {
		list = append(list, ort.WithConfig("session.disable_cpu_ep_fallback", "1"))
	}
	if f.Provider != ProviderCUDA {
		return append(list, ort.WithProvider(f.Provider, options)), nil
	}
	for key := range f.CUDA {
		if _, given := options[key]; given {
			return nil, fmt.Errorf("the provider's option %s is set twice", key)
		}
	}
	maps.Copy(options, f.CUDA)
	if err := f.device(options); err != nil {
		return nil, err
	}
	return append(list, CUDAOption(options)), nil
}

// placed reports how many nodes the provider runs, since onnxruntime silently runs the others on the CPU. Under
// --verbose it lists those.
func (f *ProviderFlags) placed(a *cli.App, s *ort.Session, path string) {
	if f.Provider == ProviderCPU {
		return
	}
	nodes, err := s.Placement()
	if err != nil {
		a.Detail("%v", err)
		return
	}
	on := 0
	others := map[string]int{}
	for _, n := range nodes {
		if providers.Same(n.Provider, f.Provider) {
			on++
		} else {
			others[n.Op]++
		}
	}
	var left []string
	for _, op := range slices.Sorted(maps.Keys(others)) {
		left = append(left, fmt.Sprintf("%d %s", others[op], op))
	}
	a.Say("%s runs %d of %s of %s", f.Provider, on, cli.Counted(len(nodes), "node"), path)
	if len(left) > 0 {
		a.Detail("left to the CPU: %s", strings.Join(left, ", "))
	}
}

// errProvider reports whether an error is about a missing provider or a wrong option of it.
func errProvider(err error) bool {
	text := err.Error()
	return errors.Is(err, providers.ErrUnavailable) || strings.Contains(text, "execution provider ") ||
		strings.Contains(text, "Error creating execution provider")
}
