package rewrite

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/rewrite/inline"

	"github.com/mojo-patch/mojo-patch/rewrite/quantized"

	"github.com/mojo-patch/mojo-patch/rewrite/sites"

	"github.com/mojo-patch/mojo-patch/rewrite/registry"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Auto asks for every kernel that is available, None for none.
const (
	Auto = registry.Auto
	None = registry.None
)

// Verify says which matches are checked by evaluation.
type Verify string

// VerifyDistinct checks one of each kind of equal sites, VerifyAll every site, VerifyOff none: then only the
// dependencies, types and shapes of a match are looked at. VerifyRouted is VerifyOff but for the experts of mixtures,
// whose nodes may fail for most inputs: only evaluation tells.
const (
	VerifyDistinct Verify = "distinct"
	VerifyAll      Verify = "all"
	VerifyOff      Verify = "off"
	VerifyRouted   Verify = "routed"
)

// ParseVerify reads the name of a mode.
func ParseVerify(s string) (Verify, error) {
	switch v := Verify(s); v {
	case VerifyDistinct, VerifyAll, VerifyOff:
		return v, nil
	}
	return "", fmt.Errorf("unknown verify mode %q; there are %s, %s, %s", s, VerifyDistinct, VerifyAll, VerifyOff)
}

// KernelCheck runs the kernel of a fused op on inputs and returns its outputs. It must run the kernel, not the op's
// function body.
type KernelCheck = pass.Kernel

// Option changes how kernels are applied.
type Option func(*config)

type config struct {
	find           func(*onnx.Graph, *infer.Facts) ([]*patterns.Match, []*patterns.Miss)
	set            *patterns.Set
	names          []string // of the patterns, in order
	library        string
	assume         bool
	verify         Verify
	kernelCheck    KernelCheck
	runtime        sites.Runtime // of the target
	keepPattern    func(name string) bool
	keepNode       func(*onnx.Node) bool
	sites          map[string]bool // by id, nil for all
	planned        *PlanFile       // that sites are of; nil for none
	unverified     bool            // sites whose check needs weights that are not there
	drawn          bool            // the check has random numbers for weights that are not there
	backend        registry.Backend
	target         *target.Target
	shapes         *target.Shapes
	lastLogits     bool
	dtype          onnx.DataType // that the model is converted to; Undefined for none
	learns         bool
	mergeProducts  bool
	mergeQuantised bool   // of these, mojo.Linear's
	ownProducts    string // activations of products that others quantised; "" where they stay
	accuracy       int64  // of a target's products with quantised weights
	latentCache    bool
	staticCache    bool
	static         staticcache.Options
	inline         inline.Mode
	version        string
	progress       func(done, total int)
}

func newConfig(options []Option) *config {
	c := &config{verify: VerifyDistinct, version: "dev", keepPattern: func(string) bool { return true },
		keepNode: func(*onnx.Node) bool { return true }, progress: func(int, int) {}}
	for _, o := range options {
		o(c)
	}
	if c.find == nil {
		if c.set == nil {
			c.set = patterns.Builtin()
		}
		if c.target != nil && c.target.Mixtures {
			c.set = c.set.WithMixtures()
		}
		if c.target != nil && c.target.Masks != target.NoMasks {
			c.set = c.set.WithAddedMasks(c.target.Masks == target.AllMasks)
		}
		c.find = c.set.Find
		for _, p := range c.set.Patterns {
			c.names = append(c.names, p.Name)
		}
	}
	return c
}

// defines reports whether a pattern file defines the function.
func (c *config) defines(f *onnx.Function) bool {
	return c.set != nil && c.set.Defines(f.Domain, f.Name)
}

// skips reports whether the body of a function is what patterns rewrite to, in which none are looked for.
func (c *config) skips(f *onnx.Function) bool { return f.Domain == fused.Domain || c.defines(f) }

// run begins a run over a model, in which these ops have kernels.
func (c *config) run(m *onnx.Model, hasKernel func(op string) bool) *pass.Run {
	return &pass.Run{Editor: edit.Editor{Model: m, Version: c.version}, Skips: c.skips, Off: c.verify == VerifyOff,
		Every: c.verify == VerifyAll, Unverified: c.unverified, Kernel: c.kernelCheck, HasKernel: hasKernel}
}

// WithPatterns looks for the patterns of the set in place of the built-in ones.
func WithPatterns(s *patterns.Set) Option { return func(c *config) { c.set = s } }

// WithLibrary names the library of kernels (a file or its folder); without it the places of fused.FindLibrary are
// searched.
func WithLibrary(path string) Option { return func(c *config) { c.library = path } }

// AssumeAvailable takes the CPU's kernels for available, and those of every device that the backend names: the model
// will run elsewhere.
func AssumeAvailable() Option { return func(c *config) { c.assume = true } }

// WithVerify chooses which matches are checked by evaluation; the default is VerifyDistinct.
func WithVerify(v Verify) Option { return func(c *config) { c.verify = v } }

// WithKernelCheck has the kernel, too, compared with the op's definition on each distinct site. A site whose kernel
// differs is refused.
func WithKernelCheck(f KernelCheck) Option { return func(c *config) { c.kernelCheck = f } }

// WithPatternFilter rewrites only the matches of patterns that keep says yes to.
func WithPatternFilter(keep func(name string) bool) Option {
	return func(c *config) { c.keepPattern = keep }
}

// WithNodeFilter rewrites only the matches whose last node keep says yes to.
func WithNodeFilter(keep func(*onnx.Node) bool) Option { return func(c *config) { c.keepNode = keep } }

// WithSites rewrites only the sites of these ids (SiteReport.ID); none stands for all. One that is not there is an
// error.
func WithSites(ids ...string) Option {
	return func(c *config) {
		if c.sites = nil; len(ids) > 0 {
			c.sites = map[string]bool{}
		}
		for _, id := range ids {
			c.sites[id] = true
		}
	}
}

// AllowUnverified takes a site whose check needs weights that are not there for one that holds, and Report.Unverified
// counts it. Without it such a site is refused.
func AllowUnverified() Option { return func(c *config) { c.unverified = true } }

// DrawMissingWeights has sites whose weights are not there checked with random numbers in their place, and Report.Drawn
// counts them. A rewrite has to hold for any weights, so this is a check; constants that patterns read, such as an
// epsilon, must be there. Without it such a site is refused.
func DrawMissingWeights() Option { return func(c *config) { c.drawn = true } }

// WithToolVersion is the version written into the metadata of fused nodes.
func WithToolVersion(v string) Option { return func(c *config) { c.version = v } }

// WithProgress has f called as the matches are checked, one after the other.
func WithProgress(f func(done, total int)) Option { return func(c *config) { c.progress = f } }

// WithBackend takes the kernels of the backend's devices alone, for each op the one of the first device that has one.
// The default is "+ALL".
func WithBackend(b registry.Backend) Option { return func(c *config) { c.backend = b } }

// WithStaticCache has attention write keys and values into buffers of so many tokens; 0 leaves the number to the
// callers (staticcache.Apply).
func WithStaticCache(length int64) Option {
	return func(c *config) { c.staticCache, c.static.Length = true, length }
}

// WithPastLength is staticcache.Options.PastLength.
func WithPastLength() Option { return func(c *config) { c.static.PastLength = true } }

// WithRowLengths is staticcache.Options.RowLengths.
func WithRowLengths() Option { return func(c *config) { c.static.RowLengths = true } }

// WithLatentCache has latent attention keep latents in its cache (latentcache.Apply).
func WithLatentCache() Option { return func(c *config) { c.latentCache = true } }

// WithMergedProducts makes one product of those that read one value (products.Apply).
func WithMergedProducts() Option {
	return func(c *config) { c.mergeProducts, c.mergeQuantised = true, true }
}

// WithMergedQuantised is WithMergedProducts for mojo.Linear alone.
func WithMergedQuantised() Option { return func(c *config) { c.mergeQuantised = true } }

// WithRuntime has the target's nodes opened and run at each distinct site. A site whose nodes do not run, or return
// something else, stays open, unless the nodes that they replace do not run there either: then the model is for another
// runtime.
func WithRuntime(r sites.Runtime) Option { return func(c *config) { c.runtime = r } }

// WithOwnProducts makes mojo.Linear and mojo.Embedding of the products and tables that other tools quantised:
// MatMulNBits, GatherBlockQuantized, and DequantizeLinear before a product or a Gather. activations is Linear's
// attribute.
func WithOwnProducts(activations string) Option {
	return func(c *config) { c.ownProducts = activations }
}

// WithAccuracyLevel is what a target's products with quantised weights say of their activations: 0 that they are not
// rounded, 4 that they may be rounded to 8 bits.
func WithAccuracyLevel(level int64) Option { return func(c *config) { c.accuracy = level } }

// Quantize has nodes read weights in their quantized forms (quantized.Apply), with the checks that the options ask for.
func Quantize(m *onnx.Model, weights []*quantized.Weight, activations string, options ...Option) (*quantized.Report,
	error) {
	run := newConfig(options).run(m, func(string) bool { return true })
	return quantized.Apply(run, weights, activations)
}

// WithInline inlines functions before the search; the default is inline.None. Where nothing is fused then, those that
// inline.Auto chose go back.
func WithInline(i inline.Mode) Option { return func(c *config) { c.inline = i } }
