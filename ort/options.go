package ort

import (
	"fmt"
	"slices"
)

// Optimization says how far onnxruntime rewrites a graph when it opens it.
type Optimization int

// The levels of onnxruntime. OptimizeAll is onnxruntime's own default, and the default here.
const (
	OptimizeAll      Optimization = iota // and layouts
	OptimizeNone                         // the graph runs as it is written
	OptimizeBasic                        // constant folding, redundant nodes, fusions that keep standard ops
	OptimizeExtended                     // fusions for one execution provider
)

var optimizationNames = []string{"all", "none", "basic", "extended"}

// String returns the name that ParseOptimization takes.
func (o Optimization) String() string {
	if o < 0 || int(o) >= len(optimizationNames) {
		return fmt.Sprintf("optimization(%d)", int(o))
	}
	return optimizationNames[o]
}

// ParseOptimization reads "none", "basic", "extended" or "all".
func ParseOptimization(name string) (Optimization, error) {
	if i := slices.Index(optimizationNames, name); i >= 0 {
		return Optimization(i), nil
	}
	return 0, fmt.Errorf("unknown optimization level %q: it is one of none, basic, extended, all", name)
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

// WithLibrary names the onnxruntime shared library, or its folder; without it Find looks for one. A process can hold
// one onnxruntime only: the first session decides.
func WithLibrary(path string) Option { return func(c *config) { c.library = path } }

// WithKernels registers libmojo_ops.so, which fused.FindLibrary finds.
func WithKernels() Option { return func(c *config) { c.findKernels = true } }

// WithKernelLibrary registers the custom ops of the shared library at path. It may be given more than once.
func WithKernelLibrary(path string) Option {
	return func(c *config) { c.kernels = append(c.kernels, path) }
}

// WithThreads sets the number of threads that work inside one op; 0 leaves it to onnxruntime.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithOptimization sets how far onnxruntime rewrites the graph.
func WithOptimization(level Optimization) Option { return func(c *config) { c.optimization = level } }

// WithProfiling writes a profile to prefix_<time>.json; Session.EndProfiling tells its name.
func WithProfiling(prefix string) Option { return func(c *config) { c.profile = prefix } }

// WithLogSeverity sets the least severity of what onnxruntime logs for the session; the default is LogFatal, since
// errors are returned.
func WithLogSeverity(s Severity) Option { return func(c *config) { c.severity = s } }

// WithOptimizedModel makes onnxruntime write the graph as it rewrote it to path.
func WithOptimizedModel(path string) Option { return func(c *config) { c.optimizedPath = path } }

// WithConfig sets a session config entry of onnxruntime, for example "session.disable_cpu_ep_fallback" to "1".
func WithConfig(key, value string) Option {
	return func(c *config) { c.entries[key] = value }
}

// WithPlacement lets Session.Placement tell which provider each node is on.
func WithPlacement() Option { return WithConfig("session.record_ep_graph_assignment_info", "1") }

// WithDimension returns a dimension that the inputs' shapes name a size, for all runs. Where all have one, onnxruntime
// computes shapes once, when it opens the model; most models need that to become a CUDA graph.
func WithDimension(name string, size int64) Option {
	return func(c *config) { c.dimensions[name] = size }
}

// WithProvider adds an execution provider by onnxruntime's name ("CUDAExecutionProvider") or a short one ("CUDA",
// "qnn"). It is one that onnxruntime was built with, or that of a plugin library, which is registered when it is needed
// (see FindProviderLibraries). Those added first come first; the CPU provider is always the last.
//
// A session with CANN does not have CANN compile the whole graph, unless the options set enable_cann_graph; doing so
// with kernels registered is an error, because none of them would be called.
func WithProvider(name string, options map[string]string) Option {
	return func(c *config) { c.providers = append(c.providers, provider{name, options}) }
}

// HasProvider reports whether options add an execution provider, however its name is spelled.
func HasProvider(name string, options ...Option) bool {
	providers := newConfig(options).providers
	return slices.ContainsFunc(providers, func(p provider) bool { return SameProvider(p.name, name) })
}

// WithProviderLibrary names a plugin library, or its folder, whose execution providers WithProvider takes before those
// that onnxruntime was built with. It may be given more than once.
func WithProviderLibrary(path string) Option {
	return func(c *config) { c.plugins = append(c.plugins, path) }
}

// WithProviderDevice has plugin providers use devices of this type alone: "CPU", "GPU" or "NPU". Without it they get
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
