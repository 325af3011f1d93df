package rewrite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/mojo-patch/mojo-patch/rewrite/latentcache"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
	"github.com/mojo-patch/mojo-patch/rewrite/sampling"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Schema is the version of the report's JSON form.
const Schema = 1

// The states of a site.
const (
	Fused   = "fused"   // replaced (or would be, in a dry run)
	Refused = "refused" // matched, but not replaced
	Open    = "open"    // matched, but not supported by the target
	Missed  = "missed"  // similar to a part of a pattern, but not matched
)

// The positions that a model computes logits for, if this was requested (Report.Logits).
const (
	LogitsLast     = "last position only"                         // of every position before
	LogitsWereLast = "last position only, as the model was given" // the model was not changed
)

// Report lists the sites of a model and their outcomes. Its JSON form is schema 1.
type Report struct {
	Schema int         `json:"schema"`
	Input  *FileReport `json:"input,omitempty"`  // the caller fills the digest
	Output *FileReport `json:"output,omitempty"` // filled by the caller
	// the preset of flags that was chosen; absent without one, filled by the caller
	Preset *PresetReport `json:"preset,omitempty"`
	// every op of the model before or after the patch; absent if nothing was written (CountOps)
	Ops []OpCount `json:"ops,omitempty"`
	// the target if the model was not patched for fused ops
	Target string `json:"target,omitempty"`
	// devices in order of priority, as in "+CPU,REF"; absent with a target
	Backend    string                    `json:"backend,omitempty"`
	PassedOver []string                  `json:"passed_over,omitempty"` // devices of ALL that have no kernel here
	Free       *dims.Report              `json:"free,omitempty"`        // absent if no dimension was to be freed
	DType      *precision.DTypeReport    `json:"dtype,omitempty"`       // absent if the model keeps its type
	Safe       *streams.SafeReport       `json:"safe,omitempty"`        // absent if overflow was not to be avoided
	Opset      *OpsetReport              `json:"opset,omitempty"`       // absent if the model's was new enough
	RunsOn     *runson.Report            `json:"runs_on,omitempty"`     // absent if no provider was named
	Inlined    *inline.Report            `json:"inlined,omitempty"`     // absent if no function was inlined
	Logits     string                    `json:"logits,omitempty"`      // LogitsLast or LogitsWereLast
	Latent     *latentcache.LatentReport `json:"latent,omitempty"`      // absent if caches hold no latents
	Paged      *pagedcache.Report        `json:"paged,omitempty"`       // absent if caches are not pools
	Cache      *staticcache.CacheReport  `json:"cache,omitempty"`       // absent if caches are unchanged
	Merged     *products.MergeReport     `json:"merged,omitempty"`      // absent if no merge was requested
	Sampling   *sampling.Report          `json:"sampling,omitempty"`    // absent if no tokens are chosen
	// absent unless a target received products with quantized weights
	Products *quantized.ProductsReport `json:"products,omitempty"`
	// nodes outside the standard, by op, in a model for runtimes of the standard
	Foreign map[string]int `json:"foreign,omitempty"`
	// Passes are the steps of the run, in order, except the search for sites and their checks.
	Passes   []PassReport    `json:"-"`
	Patterns []PatternReport `json:"patterns"`
	Sites    []SiteReport    `json:"sites"`
	Repairs  []RepairReport  `json:"repairs,omitempty"`
	// searches that were cut short in some places
	GivenUp []GivenUpReport `json:"given_up,omitempty"`
	// fused sites whose check would need missing weights
	Unverified int `json:"unverified,omitempty"`
	// fused sites that were checked with random numbers instead of missing weights
	Drawn   int                     `json:"drawn,omitempty"`
	Kernels []registry.KernelReport `json:"kernels"`
	// of the experts of all fused sites; absent if there are no experts
	Weights *WeightsReport     `json:"weights,omitempty"`
	CANN    *target.CANNReport `json:"cann,omitempty"` // absent if CANN needed no changes
	// ops with several definitions, which onnxruntime before 1.27 mixes up if it runs definitions
	Variants []string `json:"variants,omitempty"`
	// nodes that round activations to 8 bits at run time: outputs then amplify changes of a last digit
	Rounded int `json:"rounded_activations,omitempty"`
	// products of the original model for which onnxruntime rounds activations to 8 bits, though no node says so
	RoundedByRuntime int  `json:"rounded_by_onnxruntime,omitempty"`
	Changed          bool `json:"changed"`
	// changes other than sites, made without a proof because of VerifyOff or missing weights
	Assumed []string `json:"assumed,omitempty"`
	// changes other than sites, not made because they were not proven to keep the results
	Unproven []string `json:"unproven,omitempty"`
	// absent if no learning was requested
	Learnt       *LearnReport `json:"learnt,omitempty"`
	DryRun       bool         `json:"dry_run,omitempty"`
	TimeMS       Times        `json:"time_ms"`
	PeakRSSBytes int64        `json:"peak_rss_bytes,omitempty"` // filled by the caller
	Crosscheck   string       `json:"crosscheck,omitempty"`     // filled by the caller
	// whether the runtime opens the written model; absent if not tried, filled by the caller
	Runtime *RuntimeReport `json:"runtime,omitempty"`

	opsBefore map[string]int
}

// PresetReport describes a preset: a name for several flags.
type PresetReport struct {
	Name    string          `json:"name"`
	Flags   []string        `json:"flags"`              // with their values, as the command line has them
	LeftOut []LeftOutReport `json:"left_out,omitempty"` // flags that this model does without
}

// LeftOutReport says why flags of a preset do not apply to a model.
type LeftOutReport struct {
	Flags  []string `json:"flags"`
	Reason string   `json:"reason"`
}

// RuntimeReport says whether a runtime opened the patched model.
type RuntimeReport struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Opened  bool   `json:"opened"`
	// Reason says why not, if the runtime does not open the original model either.
	Reason string `json:"reason,omitempty"`
}

// FileReport describes a model file.
type FileReport struct {
	Path     string `json:"path"`
	SHA256   string `json:"sha256,omitempty"`
	Nodes    int    `json:"nodes"`
	Opset    int64  `json:"opset"`
	Exporter string `json:"exporter,omitempty"`
	// fused ops: a file that contains some was patched before
	Fused int `json:"fused_ops,omitempty"`
	// bytes of the file and its external data; filled by the caller
	Bytes int64 `json:"bytes,omitempty"`
}

// DescribeModel returns a FileReport of a model in memory, without the digest.
func DescribeModel(m *onnx.Model, path string) *FileReport {
	f := &FileReport{Path: path, Opset: m.Opset(""), Exporter: m.ProducerName}
	if m.ProducerVersion != "" {
		f.Exporter += " " + m.ProducerVersion
	}
	m.Graph.Walk(func(g *onnx.Graph) {
		f.Nodes += len(g.Nodes)
		for _, n := range g.Nodes {
			if n.Domain == fused.Domain {
				f.Fused++
			}
		}
	})
	return f
}

// PatternReport counts the matches of a pattern. Found includes matches that no selected kernel takes or that a filter
// excludes; they are neither fused nor refused.
type PatternReport struct {
	Name    string `json:"name"`
	Found   int    `json:"found"`
	Fused   int    `json:"fused"`
	Refused int    `json:"refused"`
	Open    int    `json:"open,omitempty"`
}

// SiteReport is one match, or one near miss.
type SiteReport struct {
	// ID names the site in its model and stays the same as long as its surroundings do. It consists of the pattern, the
	// place of the graph unless it is the main graph, and the output of the last node. A near miss has no ID.
	ID      string   `json:"id,omitempty"`
	Pattern string   `json:"pattern"`
	Op      string   `json:"op,omitempty"`
	Nodes   []string `json:"nodes"` // names, or output names of nodes without a name
	Node    string   `json:"node,omitempty"`
	Types   []string `json:"types,omitempty"` // of the match's inputs
	Status  string   `json:"status"`
	// Reason says in one line why the site was not replaced. Code is its kind, At the node that it is about (in the
	// site or before it), and Figures are its numbers and names.
	Reason  string             `json:"reason,omitempty"`
	Code    reason.Code        `json:"code,omitempty"`
	At      string             `json:"at,omitempty"`
	Figures map[string]any     `json:"figures,omitempty"`
	Check   *prove.CheckReport `json:"check,omitempty"`
	Weights *WeightsReport     `json:"weights,omitempty"` // of the experts of a mixture
	Emits   []string           `json:"emits,omitempty"`   // the target's ops that replace the site's fused ops
	Kernel  string             `json:"kernel,omitempty"`
	Device  string             `json:"device,omitempty"` // of the kernel; "ref" if the op runs as its definition
	// Match is the match itself, or nil for a near miss.
	Match *patterns.Match `json:"-"`
}

// CheckReport holds the figures of a site's worst comparison.
type CheckReport = prove.CheckReport

// GivenUpReport counts the places where the search for a pattern was cut short, so that its time stays in proportion to
// the model.
type GivenUpReport struct {
	Pattern string `json:"pattern"`
	Node    string `json:"node"`   // the first of the places
	Places  int    `json:"places"` // their number
}

// Text returns the report in words.
func (r *GivenUpReport) Text() string {
	more := ""
	if r.Places > 1 {
		more = " and at " + english.Counted(r.Places-1, "other place")
	}
	if r.Pattern == match.NearMissSearch {
		return fmt.Sprintf("the search for near misses stopped at %q%s: it takes too many steps, so some near "+
			"misses may not be explained", r.Node, more)
	}
	return fmt.Sprintf("the search for %s stopped at %q%s: it takes too many steps there and may miss a block",
		r.Pattern, r.Node, more)
}

// giveUp adds one graph's places at which a search was cut short.
func (r *Report) giveUp(m *patterns.Miss) {
	places, _ := m.Reason.Figures["places"].(int)
	i := slices.IndexFunc(r.GivenUp, func(g GivenUpReport) bool { return g.Pattern == m.Pattern })
	if i < 0 {
		i = len(r.GivenUp)
		r.GivenUp = append(r.GivenUp, GivenUpReport{Pattern: m.Pattern, Node: m.Anchor.Label()})
	}
	r.GivenUp[i].Places += places
}

// Times are milliseconds per phase; the caller fills Read and Write.
type Times struct {
	Read    float64 `json:"read"`
	Prepare float64 `json:"prepare,omitempty"`
	Inline  float64 `json:"inline,omitempty"`
	Infer   float64 `json:"infer"`
	Match   float64 `json:"match"`
	Check   float64 `json:"check"`
	Rewrite float64 `json:"rewrite"`
	Write   float64 `json:"write"`
}

// Fused counts the sites that were replaced.
func (r *Report) Fused() int { return r.count(Fused) }

// Blocks counts the sites that became one op.
func (r *Report) Blocks() int { return r.Count(SiteReport.Becomes) }

// Becomes reports whether the site became one op. A transposition that was moved (KeyTranspose) did not.
func (s SiteReport) Becomes() bool { return s.Status == Fused && s.Op != "Transpose" }

// Refused counts the matches that were not replaced.
func (r *Report) Refused() int { return r.count(Refused) }

// Open counts the matches that the target does not support.
func (r *Report) Open() int { return r.count(Open) }

// Missed counts the near misses.
func (r *Report) Missed() int { return r.count(Missed) }

func (r *Report) count(status string) int {
	return r.Count(func(s SiteReport) bool { return s.Status == status })
}

// Count counts the sites for which is returns true.
func (r *Report) Count(is func(SiteReport) bool) int {
	n := 0
	for _, s := range r.Sites {
		if is(s) {
			n++
		}
	}
	return n
}

// pattern returns the counters of a pattern, and adds them if necessary.
func (r *Report) pattern(name string) *PatternReport {
	for i := range r.Patterns {
		if r.Patterns[i].Name == name {
			return &r.Patterns[i]
		}
	}
	r.Patterns = append(r.Patterns, PatternReport{Name: name})
	return &r.Patterns[len(r.Patterns)-1]
}

func (r *Report) kernel(id string) *registry.KernelReport {
	for i := range r.Kernels {
		if r.Kernels[i].ID == id {
			return &r.Kernels[i]
		}
	}
	return &registry.KernelReport{}
}

func nodeNames(nodes []*onnx.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Label()
	}
	return names
}

// explain records why a site was not replaced.
func (s *SiteReport) explain(err error) {
	s.Reason, s.Code = err.Error(), reason.Unchecked
	if r := reason.As(err); r != nil {
		s.Code, s.Figures = r.Code, r.Figures
		if r.Node != nil {
			s.At = r.Node.Label()
		}
	}
	if errors.Is(err, onnx.ErrMissingData) {
		s.Code = reason.MissingWeights
	}
	if s.Status = Refused; s.Code == reason.Target {
		s.Status = Open
	}
}
