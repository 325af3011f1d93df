package ort

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// Optimization is the level to which onnxruntime rewrites a graph when it opens it.
type Optimization int

// The levels of onnxruntime. OptimizeAll is the default, here and in onnxruntime.
const (
	OptimizeAll      Optimization = iota // also layouts
	OptimizeNone                         // the graph runs unchanged
	OptimizeBasic                        // constant folding, redundant nodes, fusions that keep standard ops
	OptimizeExtended                     // fusions for one execution provider
)

var optimizationNames = []string{"all", "none", "basic", "extended"}

// String returns the name for ParseOptimization.
func (o Optimization) String() string {
	if o < 0 || int(o) >= len(optimizationNames) {
		return fmt.Sprintf("optimization(%d)", int(o))
	}
	return optimizationNames[o]
}

// ParseOptimization parses "none", "basic", "extended" or "all".
func ParseOptimization(name string) (Optimization, error) {
	if i := slices.Index(optimizationNames, name); i >= 0 {
		return Optimization(i), nil
	}
	return 0, fmt.Errorf("unknown optimization level %q: must be none, basic, extended or all", name)
}

// Severity is the least severity of the messages that onnxruntime logs to stderr.
type Severity int

// The severities of onnxruntime.
const (
	LogVerbose Severity = iota
	LogInfo
	LogWarning
	LogError
	LogFatal
)

// Option changes how Open opens a session.
type Option func(*config)

type config struct {
	library       string
	kernels       []string
	findKernels   bool
	threads       int
	optimization  Optimization
	profile       string
	severity      Severity
	optimizedPath string
	entries       map[string]string
	dimensions    map[string]int64
	providers     []provider
	plugins       []string // paths of plugin libraries
	deviceType    string
}

type provider struct {
	name    string
	options map[string]string
}

// WithLibrary names the onnxruntime shared library or its folder; by default Find searches. A process can have only one
// onnxruntime: the first session decides.
func WithLibrary(path string) Option { return func(c *config) { c.library = path } }

// WithKernels registers libmojo_ops.so, which fused.FindLibrary finds.
func WithKernels() Option { return func(c *config) { c.findKernels = true } }

// WithKernelLibrary registers the custom ops of the shared library at path. It may be given more than once.
func WithKernelLibrary(path string) Option {
	return func(c *config) { c.kernels = append(c.kernels, path) }
}

// WithThreads sets the number of threads inside one op; 0 leaves it to onnxruntime.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithOptimization sets how far onnxruntime rewrites the graph.
func WithOptimization(level Optimization) Option { return func(c *config) { c.optimization = level } }

// WithProfiling writes a profile to prefix_<time>.json. Session.EndProfiling returns its name.
func WithProfiling(prefix string) Option { return func(c *config) { c.profile = prefix } }

// WithLogSeverity sets the least severity that onnxruntime logs for the session. The default is LogFatal, because
// errors are returned.
func WithLogSeverity(s Severity) Option { return func(c *config) { c.severity = s } }

// WithOptimizedModel makes onnxruntime write its rewritten graph to path.
func WithOptimizedModel(path string) Option { return func(c *config) { c.optimizedPath = path } }

// WithConfig sets a session config entry of onnxruntime, for example "session.disable_cpu_ep_fallback" to "1".
func WithConfig(key, value string) Option {
	return func(c *config) { c.entries[key] = value }
}

// WithPlacement enables Session.Placement.
func WithPlacement() Option { return WithConfig("session.record_ep_graph_assignment_info", "1") }

// WithDimension fixes the size of a named dimension of the inputs' shapes for all runs. If all are fixed, onnxruntime
// computes shapes once, when it opens the model; most models need that to become a CUDA graph.
func WithDimension(name string, size int64) Option {
	return func(c *config) { c.dimensions[name] = size }
}

// WithProvider adds an execution provider by onnxruntime's name ("CUDAExecutionProvider") or a short one ("CUDA",
// "qnn"). It is built into onnxruntime, or comes from a plugin library that is registered on demand (see
// providers.FindLibraries). Providers take precedence in the order added; the CPU provider is always last.
//
// A session with CANN does not let CANN compile the whole graph unless the options set enable_cann_graph. Setting it
// with registered kernels is an error, because no kernel would be called.
func WithProvider(name string, options map[string]string) Option {
	return func(c *config) { c.providers = append(c.providers, provider{name, options}) }
}

// HasProvider reports whether options add an execution provider, in any spelling.
func HasProvider(name string, options ...Option) bool {
	same := func(p provider) bool { return providers.Same(p.name, name) }
	return slices.ContainsFunc(newConfig(options).providers, same)
}

// WithProviderLibrary names a plugin library or its folder. WithProvider prefers its providers to built-in ones. It may
// be given more than once.
func WithProviderLibrary(path string) Option {
	return func(c *config) { c.plugins = append(c.plugins, path) }
}

// WithProviderDevice restricts plugin providers to devices of this type: "CPU", "GPU" or "NPU". Without it they get
// every device that they offer.
func WithProviderDevice(hardware string) Option {
	return func(c *config) { c.deviceType = hardware }
}

func newConfig(options []Option) *config {
	c := &config{severity: LogFatal, entries: map[string]string{}, dimensions: map[string]int64{}}
	for _, o := range options {
		o(c)
	}
	return c
}
