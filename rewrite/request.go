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

// Auto asks for every kernel that is available, None for none.
const (
	Auto = registry.Auto
	None = registry.None
)

// Verify says which matches are checked by evaluation.
type Verify string

// VerifyDistinct checks one of each kind of equal sites, VerifyAll every site, VerifyOff none: then only the
// dependencies, types and shapes of a match are looked at. VerifyRouted is VerifyOff except for the experts of
// mixtures, whose nodes may fail for most inputs: only evaluation tells.
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

// Merge says which products that read one value become one product.
type Merge int

// NoMerge leaves products as they are, MergeQuantized merges those of mojo.Linear, MergeAll all.
const (
	NoMerge Merge = iota
	MergeQuantized
	MergeAll
)

// Request says what is to become of models. The zero value puts the available kernels at the sites that the built-in
// patterns find, and changes nothing else.
type Request struct {
	// Kernels are Auto for all that are available, None for none, or ids separated by commas; "" is Auto.
	Kernels string
	// Library is the file or folder of the kernels' library; "" searches the places of fused.FindLibrary.
	Library string
	// AssumeAvailable takes the CPU's kernels for available, and those of every device that Backend names: the model
	// will run elsewhere.
	AssumeAvailable bool
	// Backend limits kernels to those of its devices, for each op the one of the first device that has one; the zero
	// value is "+ALL".
	Backend registry.Backend

	// Target is what to write in place of fused ops, nil for the fused ops themselves. The model is brought to the
	// target's opset before. Kernels and backends play no part then.
	Target *target.Target
	// Shapes fixes shapes of the model's inputs for the target.
	Shapes *target.Shapes
	// AccuracyLevel is what a target's products with quantized weights say of their activations: 0 that they are not
	// rounded, 4 that they may be rounded to 8 bits.
	AccuracyLevel int64
	// Runtime opens and runs the target's nodes at each distinct site. A site whose nodes do not run, or return
	// something else, stays open, unless the nodes that they replace do not run there either: then the model is for
	// another runtime.
	Runtime sites.Runtime

	// Patterns are looked for; nil stands for the built-in ones.
	Patterns *patterns.Set
	// KeepPattern and KeepNode leave out the matches of patterns, and those whose last node, they return false for; nil
	// keeps all.
	KeepPattern func(name string) bool
	KeepNode    func(*onnx.Node) bool
	// Sites are the ids (SiteReport.ID) of the sites to replace; none stands for all. One that is not there is an
	// error.
	Sites []string
	// Plan, unless it is nil, says which sites to replace. If one of them is not a site, is refused, or has other nodes
	// than the plan says, Patcher.Plan returns an error that names it.
	Plan *PlanFile
	// Learn writes patterns for the blocks that were fitted to an op, where no pattern matched, and are fused. They are
	// in Report.Learnt.
	Learn bool

	// Verify says which matches are checked by evaluation; "" is VerifyDistinct.
	Verify Verify
	// KernelCheck, unless it is nil, runs kernels: they are compared with the op's definition on each distinct site. A
	// site whose kernel differs is refused.
	KernelCheck KernelCheck
	// AllowUnverified takes a site whose check needs weights that are not there for one that holds, and
	// Report.Unverified counts it. Without it such a site is refused.
	AllowUnverified bool
	// DrawMissing has sites whose weights are not there checked with random numbers in their place, and Report.Drawn
	// counts them. A rewrite has to hold for any weights, so this is a check; constants that patterns read, such as an
	// epsilon, must be there. Without it such a site is refused.
	DrawMissing bool

	// Free are dimensions of the inputs that the exporter baked, as dims.Find reads them: constants that come from them
	// follow the inputs, or the model is an error (dims.Apply).
	Free []string
	// Recorded, unless it is nil, returns recorded cases of a model, which decide what it leaves open about Free.
	Recorded func(*onnx.Model) ([]golden.Case, error)
	// ExtendMasks has masks that were folded into tables go on as they begin, where neither the model nor recorded
	// cases tell (dims.Options).
	ExtendMasks bool
	// DType converts the model to float32, float16 or bfloat16 before anything else (precision.Apply), for the CUDA
	// provider alone if that is the only device of the backend, else for the CPU's too; onnx.Undefined keeps its type.
	DType onnx.DataType
	// Safe keeps a model that is converted to float16 from overflowing (streams.Prepare); nil converts it as it is.
	Safe *streams.Options
	// RunsOn has nodes that a provider of onnxruntime has no kernel for become what it has (runson.Apply); nil leaves
	// them.
	RunsOn *runson.Place
	// LastLogits has the model compute the logits of the last position alone (convert.LastLogits). One that does so
	// already is taken as it is.
	LastLogits bool
	// Inline inlines functions before the search; "" is inline.None. If nothing is fused then, those that inline.Auto
	// chose go back.
	Inline inline.Mode

	// StaticCache has attention write keys and values into buffers (staticcache.Apply); nil leaves caches as they are.
	StaticCache *staticcache.Options
	// LatentCache has latent attention keep latents in its cache (latentcache.Apply).
	LatentCache bool
	// Merge makes one product of those that read one value (products.Apply).
	Merge Merge
	// OwnProducts makes mojo.Linear and mojo.Embedding of the products and tables that other tools quantized:
	// MatMulNBits, GatherBlockQuantized, and DequantizeLinear before a product or a Gather. It is Linear's attribute
	// activations; "" leaves them.
	OwnProducts string

	// Version is that of the tool in the metadata of fused nodes; "" is "dev".
	Version string
	// Progress, unless it is nil, is called as the matches are checked, one after the other.
	Progress func(done, total int)

	// find stands in for Patterns; names are those of the patterns, ids the sites to replace, nil for all.
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
	if t := r.Target; t != nil && t.Masks != target.NoMasks {
		r.Patterns = r.Patterns.WithAddedMasks(t.Masks == target.AllMasks)
	}
	r.find = r.Patterns.Find
	for _, p := range r.Patterns.Patterns {
		r.names = append(r.names, p.Name)
	}
	return &r
}

// skips reports whether a function is what patterns rewrite to: a fused op, or one that a pattern file defines. No
// blocks are looked for in its body.
func (r *Request) skips(f *onnx.Function) bool {
	return f.Domain == fused.Domain || r.Patterns != nil && r.Patterns.Defines(f.Domain, f.Name)
}

// run begins a run over a model, in which these ops have kernels.
func (r *Request) run(m *onnx.Model, hasKernel func(op string) bool) *pass.Run {
	return &pass.Run{Editor: edit.Editor{Model: m, Version: r.Version}, Skips: r.skips, Off: r.Verify == VerifyOff,
		Every: r.Verify == VerifyAll, Unverified: r.AllowUnverified, Kernel: r.KernelCheck, HasKernel: hasKernel}
}

// Quantize has nodes read weights in their quantized forms (quantized.Apply), with the checks of the request.
// activations are what Linear and QMoE round activations to.
func Quantize(m *onnx.Model, weights []*quantized.Weight, activations string, r Request) (*quantized.Report, error) {
	run := r.filled().run(m, func(string) bool { return true })
	return quantized.Apply(run, weights, activations)
}

// Narrow has a model store weights in 16 bits (quantized.StoreNarrow), and has products read them as they are stored
// (quantized.Half), with the checks of the request.
func Narrow(m *onnx.Model, weights []*quantized.Narrow, r Request) (*quantized.Report, error) {
	run := r.filled().run(m, func(string) bool { return true })
	if err := quantized.StoreNarrow(run, weights); err != nil {
		return nil, err
	}
	_, checks, err := quantized.Half(run)
	return checks, err
}
