package ort

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/yalue/onnxruntime_go"
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

// String gives the name that ParseOptimization takes.
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
	providers     []provider
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

// WithProvider adds an execution provider by onnxruntime's name ("CUDA", "XNNPACK", …). Those added first come first;
// the CPU provider is always the last.
func WithProvider(name string, options map[string]string) Option {
	return func(c *config) { c.providers = append(c.providers, provider{name, options}) }
}

func newConfig(options []Option) *config {
	c := &config{severity: LogFatal, entries: map[string]string{}}
	for _, o := range options {
		o(c)
	}
	return c
}

// apply makes onnxruntime's session options; the caller destroys them.
func (c *config) apply() (*onnxruntime_go.SessionOptions, error) {
	o, err := onnxruntime_go.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	if err := c.set(o); err != nil {
		return nil, errors.Join(err, o.Destroy())
	}
	return o, nil
}

func (c *config) set(o *onnxruntime_go.SessionOptions) error {
	if c.threads < 0 {
		return fmt.Errorf("the number of threads is %d: it must be 0 (onnxruntime chooses) or more", c.threads)
	}
	levels := map[Optimization]onnxruntime_go.GraphOptimizationLevel{
		OptimizeNone:     onnxruntime_go.GraphOptimizationLevelDisableAll,
		OptimizeBasic:    onnxruntime_go.GraphOptimizationLevelEnableBasic,
		OptimizeExtended: onnxruntime_go.GraphOptimizationLevelEnableExtended,
		OptimizeAll:      onnxruntime_go.GraphOptimizationLevelEnableAll,
	}
	level, ok := levels[c.optimization]
	if !ok {
		return fmt.Errorf("unknown optimization level %v", c.optimization)
	}
	if err := o.SetGraphOptimizationLevel(level); err != nil {
		return err
	}
	if err := o.SetLogSeverityLevel(onnxruntime_go.LoggingLevel(c.severity)); err != nil {
		return fmt.Errorf("log severity %d: %w", c.severity, err)
	}
	if c.threads > 0 {
		if err := o.SetIntraOpNumThreads(c.threads); err != nil {
			return err
		}
	}
	if c.profile != "" {
		if err := o.EnableProfiling(c.profile); err != nil {
			return fmt.Errorf("profiling to %q: %w", c.profile, err)
		}
	}
	if c.optimizedPath != "" {
		if err := o.SetOptimizedModelFilePath(c.optimizedPath); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		if err := o.AddSessionConfigEntry(key, c.entries[key]); err != nil {
			return fmt.Errorf("session config entry %q: %w", key, err)
		}
	}
	for _, p := range c.providers {
		if err := appendProvider(o, p); err != nil {
			return fmt.Errorf("execution provider %q: %w", p.name, err)
		}
	}
	return c.registerKernels(o)
}

func appendProvider(o *onnxruntime_go.SessionOptions, p provider) error {
	if p.name != "CUDA" {
		return o.AppendExecutionProvider(p.name, p.options)
	}
	cuda, err := onnxruntime_go.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer cuda.Destroy()
	if len(p.options) > 0 {
		if err := cuda.Update(p.options); err != nil {
			return err
		}
	}
	return o.AppendExecutionProviderCUDA(cuda)
}

func (c *config) registerKernels(o *onnxruntime_go.SessionOptions) error {
	paths := c.kernels
	if c.findKernels {
		found, err := fused.FindLibrary("")
		if err != nil {
			return err
		}
		paths = append([]string{found}, paths...)
	}
	for _, path := range paths {
		if err := o.RegisterCustomOpsLibrary(path); err != nil {
			return fmt.Errorf("cannot register the kernels of %s: %w", path, err)
		}
	}
	return nil
}
