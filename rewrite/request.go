package rewrite

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Auto requests every available kernel, None no kernel.
const (
	Auto = registry.Auto
	None = registry.None
)

// Verify selects the matches that are checked by evaluation.
type Verify string

// VerifyDistinct checks one of each kind of equal sites, and VerifyAll every site. VerifyOff evaluates no site and
// checks only the dependencies, types and shapes of a match. VerifyRouted is VerifyOff except for the experts of
// mixtures, whose nodes may fail for most inputs: only evaluation detects that.
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

// Merge selects the products of one value that become one product.
type Merge int

// NoMerge keeps products as they are, MergeQuantized merges mojo.Linear products, and MergeAll merges all.
const (
	NoMerge Merge = iota
	MergeQuantized
	MergeAll
)

// Request describes the changes to models. The zero value puts the available kernels at the sites that the built-in
// patterns find, and changes nothing else.
type Request struct {
	// Kernels is Auto, None, or a list of ids separated by commas; "" is Auto.
	Kernels string
	// Library is the kernel library's file or folder; "" searches the places of fused.FindLibrary.
	Library string
	// AssumeAvailable treats the kernels of the CPU and of every device in Backend as available. Use it to patch a
	// model for another machine.
	AssumeAvailable bool
	// Backend limits kernels to those of its devices; each op uses the first device that has a kernel. The zero value
	// is "+ALL".
	Backend registry.Backend

	// Target selects the ops that replace sites instead of fused ops; nil keeps fused ops. The model is first raised to
	// the target's opset. Kernels and backends then have no effect.
	Target *target.Target
	// Shapes fixes shapes of the model's inputs for the target.
	Shapes *target.Shapes
	// AccuracyLevel applies to the activations of a target's products with quantized weights: 0 does not round them, 4
	// allows rounding to 8 bits.
	AccuracyLevel int64
	// Runtime opens and runs the target's nodes at each distinct site. A site whose nodes fail or return other results
	// stays open, unless the original nodes fail there, too: then the model is for another runtime.
	Runtime sites.Runtime

	// Patterns are the patterns to search for; nil selects the built-in ones.
	Patterns *patterns.Set
	// KeepPattern and KeepNode exclude the matches whose pattern or last node they return false for; nil keeps all.
	KeepPattern func(name string) bool
	KeepNode    func(*onnx.Node) bool
	// Sites are the ids (SiteReport.ID) of the sites to replace; an empty list selects all. An id without a site is an
	// error.
	Sites []string
	// Plan, unless it is nil, selects the sites to replace. If one of them does not exist, is refused, or has other
	// nodes than in the plan, Patcher.Plan returns an error that names it.
	Plan *PlanFile
	// Learn writes patterns for fused blocks that no pattern matched and that were fitted to an op. They are in
	// Report.Learnt.
	Learn bool

	// Verify selects the matches that are checked by evaluation; "" is VerifyDistinct.
	Verify Verify
	// KernelCheck, unless it is nil, runs kernels and compares them with the op's definition on each distinct site. A
	// site whose kernel differs is refused.
	KernelCheck KernelCheck
	// AllowUnverified accepts sites whose check needs missing weights, and Report.Unverified counts them. Without it
	// they are refused.
	AllowUnverified bool
	// DrawMissing checks sites with random numbers instead of missing weights, and Report.Drawn counts them. A rewrite
	// must hold for any weights, so this is a check; constants that patterns read, such as an epsilon, must exist.
	// Without DrawMissing such sites are refused.
	DrawMissing bool

	// Free lists input dimensions that the exporter fixed, as dims.Find reads them. Constants that depend on them
	// follow the inputs, or the model is an error (dims.Apply).
	Free []string
	// Recorded, unless it is nil, returns recorded cases of a model, which resolve ambiguities about Free.
	Recorded func(*onnx.Model) ([]golden.Case, error)
	// ExtendMasks continues masks that were folded into tables as they begin, if neither the model nor recorded cases
	// tell how (dims.Options).
	ExtendMasks bool
	// DType first converts the model to float32, float16 or bfloat16 (precision.Apply): for the CUDA provider if it is
	// the backend's only device, else also for the CPU; onnx.Undefined keeps the type.
	DType onnx.DataType
	// Safe keeps a model that is converted to float16 from overflowing (streams.Prepare); nil does not.
	Safe *streams.Options
	// RunsOn replaces nodes that a provider of onnxruntime has no kernel for (runson.Apply); nil keeps them.
	RunsOn *runson.Place
	// LastLogits makes the model compute only the logits of the last position (convert.LastLogits). A model that
	// already does so is accepted.
	LastLogits bool
	// Inline inlines functions before the search; "" is inline.None. If nothing is fused, the functions that
	// inline.Auto chose are restored.
	Inline inline.Mode

	// StaticCache makes attention write keys and values into buffers (staticcache.Apply); nil keeps caches as they are.
	StaticCache *staticcache.Options
	// PagedCache is the number of tokens of a block of the pools that caches become (pagedcache.Before); 0 keeps caches
	// as they are. StaticCache must be nil.
	PagedCache int64
	// PagedType is the type of codes in these pools, int8 or float8e4m3fn; Undefined keeps the type of keys and values.
	PagedType onnx.DataType
	// LatentCache makes latent attention keep latents in its cache (latentcache.Apply).
	LatentCache bool
	// Sample chooses tokens behind the logits (sampling.Apply).
	Sample bool
	// Merge merges products that read one value (products.Apply).
	Merge Merge
	// OwnProducts is Linear's attribute activations. It converts products and tables that other tools quantized
	// (MatMulNBits, GatherBlockQuantized, and DequantizeLinear before a product or a Gather) to mojo.Linear and
	// mojo.Embedding; "" keeps them.
	OwnProducts string

	// Version is the tool's version in the metadata of fused nodes; "" is "dev".
	Version string
	// Progress, unless it is nil, is called as matches are checked.
	Progress func(done, total int)

	// find replaces Patterns; names are the patterns' names, ids the sites to replace, nil for all.
	find  func(*onnx.Graph, *infer.Facts) ([]*patterns.Match, []*patterns.Miss)
	names []string
	ids   map[string]bool
}

// filled returns the request with its defaults.
func (r Request) filled() *Request {
	if r.Kernels == "" {
		r.Kernels = Auto
	}
	if r.Verify == "" {
		r.Verify = VerifyDistinct
	}
	if r.Version == "" {
		r.Version = "dev"
	}
	if r.KeepPattern == nil {
		r.KeepPattern = func(string) bool { return true }
	}
	if r.KeepNode == nil {
		r.KeepNode = func(*onnx.Node) bool { return true }
	}
	if r.Progress == nil {
		r.Progress = func(int, int) {}
	}
	ids := r.Sites
	if r.Plan != nil {
		ids = r.Plan.Applied()
	}
	if len(ids) > 0 || r.Plan != nil {
		r.ids = map[string]bool{}
	}
	for _, id := range ids {
		r.ids[id] = true
	}
	if r.find != nil {
		return &r
	}
	if r.Patterns == nil {
		r.Patterns = patterns.Builtin()
	}
	if t := r.Target; t != nil && t.Mixtures {
		r.Patterns = r.Patterns.WithMixtures()
	}
	// Attention on pools takes no masks.
	if t := r.Target; t != nil && t.Masks != target.NoMasks && r.PagedCache == 0 {
		r.Patterns = r.Patterns.WithAddedMasks(t.Masks == target.AllMasks)
	}
	r.find = r.Patterns.Find
	for _, p := range r.Patterns.Patterns {
		r.names = append(r.names, p.Name)
	}
	return &r
}

// skips reports whether patterns rewrite to a function: a fused op, or an op that a pattern file defines. Its body is
// not searched for blocks.
func (r *Request) skips(f *onnx.Function) bool {
	return f.Domain == fused.Domain || r.Patterns != nil && r.Patterns.Defines(f.Domain, f.Name)
}

// run begins a run over a model; hasKernel reports whether an op has a kernel.
func (r *Request) run(m *onnx.Model, hasKernel func(op string) bool) *pass.Run {
	return &pass.Run{Editor: edit.Editor{Model: m, Version: r.Version}, Skips: r.skips, Off: r.Verify == VerifyOff,
		Every: r.Verify == VerifyAll, Unverified: r.AllowUnverified, Kernel: r.KernelCheck, HasKernel: hasKernel}
}

// Quantize makes nodes read quantized weights (quantized.Apply), with the checks of the request. activations is the
// type that Linear and QMoE round activations to.
func Quantize(m *onnx.Model, weights []*quantized.Weight, activations string, r Request) (*quantized.Report, error) {
	run := r.filled().run(m, func(string) bool { return true })
	return quantized.Apply(run, weights, activations)
}

// Narrow makes a model store weights in 16 bits (quantized.StoreNarrow) and makes products read them as stored
// (quantized.Half), with the checks of the request.
func Narrow(m *onnx.Model, weights []*quantized.Narrow, r Request) (*quantized.Report, error) {
	run := r.filled().run(m, func(string) bool { return true })
	if err := quantized.StoreNarrow(run, weights); err != nil {
		return nil, err
	}
	_, checks, err := quantized.Half(run)
	return checks, err
}
