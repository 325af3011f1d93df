// Package planning finds and checks the sites of a model as the flags of match and apply say, and writes the files
// about them: plans, learned patterns and pages.
package planning

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/precision"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
	"github.com/spf13/cobra"
)

// PlanFlags select the sites and how they are checked; match and apply share them.
type PlanFlags struct {
	include      string
	only, skip   []string
	node         string
	sites        []string
	Verify       string // --verify
	CheckKernels string // --check-kernels
	KernelsLib   string // --kernels-lib
	Onnxruntime  string // --onnxruntime
	require      bool
	allowMissing bool
	Assume       bool // --assume-available
	inline       InlineFlag
	Devices      session.DeviceFlag // --backend
	Patterns     PatternFlag        // --patterns
	target       targetFlags
	LastLogits   bool                                     // --last-logits
	Free         []string                                 // dimensions; only for apply
	ExtendMasks  bool                                     // with free
	Recorded     func(*onnx.Model) ([]golden.Case, error) // reads Golden; only for apply
	DType        string                                   // --dtype
	Safe         precision.SafeFlags                      // with DType
	Golden       string                                   // recorded cases; only for apply
	runsOn       string
	Merge        bool          // merge products; only for apply
	Quantized    string        // how to treat products that are quantized already; only for apply
	Activations  string        // of these; only for apply
	Cache        string        // how caches are kept; only for apply
	CacheType    string        // of the elements of pools; only for apply
	PastLength   string        // with cache; "" if not given
	MLACache     bool          // only for apply
	Sample       bool          // only for apply
	Learn        learnFlag     // only for apply
	Planned      PlanFileFlags // of commands that apply a plan
	HTML         string        // the page to write
	Preset       PresetFlag    // --for
}

// AddTo adds the flags to a command.
func (f *PlanFlags) AddTo(c *cobra.Command) {
	fl := c.Flags()
	f.Preset.AddTo(c)
	fl.StringVar(&f.include, "include", rewrite.Auto,
		"kernels to apply: auto, none, or ids separated by commas (see mojo-patch kernels)")
	fl.StringSliceVar(&f.only, "only", nil, "replace only the sites of these patterns")
	fl.StringSliceVar(&f.skip, "skip", nil, "do not replace the sites of these patterns")
	fl.StringVar(&f.node, "node", "", "replace only sites whose last node has a name that matches this regular "+
		"expression")
	fl.StringArrayVar(&f.sites, "site", nil, "replace only the site with this id, as --json reports it (repeatable)")
	fl.StringVar(&f.Verify, "verify", string(rewrite.VerifyDistinct),
		"which sites to evaluate: off, distinct (one of each kind) or all")
	fl.StringVar(&f.CheckKernels, "check-kernels", session.KernelsAuto,
		"run the kernels, or the target's ops, on the checked sites, and open the patched model: auto (if "+
			"onnxruntime is found), on or off")
	session.LibraryFlags(c, &f.Onnxruntime, &f.KernelsLib)
	f.Patterns.AddTo(c)
	f.inline.AddTo(c)
	fl.BoolVar(&f.require, "require", false, "exit with 3 if nothing can be fused")
	fl.BoolVar(&f.allowMissing, "allow-missing-weights", false, "accept a graph whose external data is missing: "+
		"sites are checked with random numbers instead of weights")
	fl.BoolVar(&f.Assume, "assume-available", false,
		"assume that the kernels of the CPU, or of the devices in --backend, are available: the model will run on "+
			"another machine")
	f.Devices.AddTo(c, "devices whose kernels to use")
	f.target.flags(c)
	fl.BoolVar(&f.LastLogits, "last-logits", false,
		"compute the logits only of the last position (left-padded batches), not of every position")
	precision.DTypeFlag(c, &f.DType, "convert the model first: float32, float16 or bfloat16 (default: keep its type)")
	f.Safe.AddTo(c, "the cases of --golden, or random inputs")
	fl.StringVar(&f.runsOn, "runs-on", "",
		"rewrite nodes that this provider of onnxruntime has no kernel for: cpu or cuda, with @1.29 for a version "+
			"(default: the installed one)")
	cli.CompleteValues(c, "runs-on", func() []string { return []string{"cpu", "cuda"} }, false)
	fl.StringVar(&f.HTML, "html", "",
		"also write the report as one page: each kind of block before and after, its check, unfused sites and reasons")
	cli.CompleteFile(c, "html", "html")
	cli.CompleteValues(c, "include", kernelIDs, true)
	cli.CompleteValues(c, "only", PatternNames, true)
	cli.CompleteValues(c, "skip", PatternNames, true)
	cli.CompleteValues(c, "verify", verifyModes, false)
	cli.CompleteValues(c, "check-kernels", session.KernelModes, false)
}

// Plan is a patcher with its resources, after all flags were parsed.
type Plan struct {
	*PlanFlags
	*rewrite.Patcher
	app  *cli.App
	set  *patterns.Set
	End  func()      // releases the patcher's resources
	open *opener     // for patched models; nil if they are not opened
	page *page.Apply // nil if no page is requested
}

// Begin makes a plan from the flags. End it after use.
func (f *PlanFlags) Begin(a *cli.App) (*Plan, error) {
	if f.HTML != "" {
		if err := cli.Writable(f.HTML); err != nil {
			return nil, fmt.Errorf("--html: %w", err)
		}
	}
	verify, err := rewrite.ParseVerify(f.Verify)
	if err != nil {
		return nil, fmt.Errorf("--verify: %w", err)
	}
	set, err := f.Patterns.Set()
	if err != nil {
		return nil, fmt.Errorf("--patterns: %w", err)
	}
	if err := knownPatterns(set, append(slices.Clone(f.only), f.skip...)); err != nil {
		return nil, err
	}
	functions, err := f.inline.Value()
	if err != nil {
		return nil, err
	}
	backend, err := f.Devices.Backend()
	if err != nil {
		return nil, err
	}
	t, shapes, err := f.target.of()
	if err != nil {
		return nil, err
	}
	node, err := regexp.Compile(f.node)
	if err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	step, end := a.Progress("checking site")
	request := rewrite.Request{Kernels: f.include, Library: f.KernelsLib, AssumeAvailable: f.Assume, Backend: backend,
		Target: t, Shapes: shapes, AccuracyLevel: f.target.accuracy, Patterns: set, Sites: f.sites,
		Plan: f.Planned.File, Learn: f.Learn.path != "", Verify: verify, DrawMissing: f.allowMissing,
		Free: f.Free, ExtendMasks: f.ExtendMasks, Recorded: f.Recorded, LastLogits: f.LastLogits, Sample: f.Sample,
		LatentCache: f.MLACache, Inline: functions,
		Version: cli.Version(), Progress: step,
		KeepPattern: func(name string) bool {
			return (len(f.only) == 0 || slices.Contains(f.only, name)) && !slices.Contains(f.skip, name)
		},
		KeepNode: func(n *onnx.Node) bool { return node.MatchString(n.Name) }}
	if request.DType, err = precision.DTypeOf(f.DType); err != nil {
		return nil, err
	}
	if request.Safe, err = f.Safe.Options(request.DType, f.Golden); err != nil {
		return nil, err
	}
	if f.runsOn != "" {
		lib, _ := ort.Find(f.Onnxruntime) // any version will do if onnxruntime is missing
		if request.RunsOn, err = runson.ParsePlace(f.runsOn, lib.Version); err != nil {
			return nil, fmt.Errorf("--runs-on: %w", err)
		}
	}
	switch f.Quantized {
	case "", QuantizedKeep:
	case QuantizedMojo:
		request.OwnProducts = cmp.Or(f.Activations, precision.ActivationKinds[0])
		if !slices.Contains(precision.ActivationKinds, request.OwnProducts) {
			return nil, fmt.Errorf("--activations %q: must be one of %s", request.OwnProducts,
				strings.Join(precision.ActivationKinds, ", "))
		}
	default:
		return nil, fmt.Errorf("--quantized %q: must be %s or %s", f.Quantized, QuantizedKeep, QuantizedMojo)
	}
	if f.Merge {
		request.Merge = rewrite.MergeAll
	}
	if form, _, _ := strings.Cut(f.Cache, "="); form == pagedcache.Form {
		if request.PagedCache, err = pagedcache.Parse(f.Cache); err != nil {
			return nil, fmt.Errorf("--cache %w", err)
		}
		if request.PagedType, err = pagedcache.ParseType(f.CacheType); err != nil {
			return nil, fmt.Errorf("--cache-type %w", err)
		}
		if t != nil && !t.Takes(fused.PagedAttentionName) {
			return nil, fmt.Errorf("--cache %s cannot be combined with --target %s, which has no attention on pools",
				f.Cache, t.Name)
		}
		if t != nil && f.CacheType != "" && !t.Takes(fused.QPagedAttentionName) {
			return nil, fmt.Errorf("--cache-type %s cannot be combined with --target %s, whose pools hold no codes",
				f.CacheType, t.Name)
		}
	} else if f.Cache != "" {
		length, err := staticcache.Parse(f.Cache)
		if err != nil {
			return nil, fmt.Errorf("--cache %w", err)
		}
		request.StaticCache = &staticcache.Options{Length: length, PastLength: f.PastLength == PastLengthOne,
			RowLengths: f.PastLength == pastLengthRows}
		if f.PastLength != "" && !request.StaticCache.PastLength && !request.StaticCache.RowLengths {
			return nil, fmt.Errorf("--past-length=%s: use --past-length or --past-length=%s", f.PastLength,
				pastLengthRows)
		}
	}
	var kernels *prober.Prober
	if t == nil {
		kernels, err = f.prober(a, verify, backend)
	}
	if err != nil {
		return nil, err
	}
	opens, err := f.opener(a, t)
	if err != nil {
		return nil, err
	}
	if place := request.RunsOn; place != nil && place.Device != session.DeviceCPU {
		opens = nil
	}
	switch {
	case kernels != nil:
		request.KernelCheck = kernels.Run
	case t != nil && opens != nil && verify != rewrite.VerifyOff:
		kernels = &prober.Prober{Options: []ort.Option{ort.WithLibrary(opens.lib.Path), ort.WithThreads(1)},
			Sessions: map[string]*ort.Session{}}
		request.Runtime = kernels.RunSite
	}
	if kernels != nil {
		clear := end
		end = func() { clear(); kernels.Close() }
	}
	patcher, err := rewrite.New(request)
	if err == nil && t == nil && f.include == rewrite.Auto && len(f.Patterns.Paths) == 0 { // those may need no kernel
		err = available(patcher.Kernels())
	}
	if err != nil {
		end()
		return nil, err
	}
	return &Plan{f, patcher, a, set, end, opens, nil}, nil
}

// opener returns the opener for the patched model, or nil if onnxruntime's CPU provider will not open it.
func (f *PlanFlags) opener(a *cli.App, t *target.Target) (*opener, error) {
	if f.CheckKernels == session.KernelsOff || t != nil && !t.OnCPU {
		return nil, nil
	}
	lib, err := ort.Find(f.Onnxruntime)
	switch {
	case err == nil:
		return newOpener(lib, f.KernelsLib, t == nil), nil
	case f.CheckKernels == session.KernelsOn || f.Onnxruntime != "":
		return nil, err
	}
	a.Detail("the patched model will not be opened: %s", cli.FirstLine(err))
	return nil, nil
}

// prober returns the prober for kernels in the check, or nil if kernels do not run.
func (f *PlanFlags) prober(a *cli.App, verify rewrite.Verify, b registry.Backend) (*prober.Prober, error) {
	switch f.CheckKernels {
	case session.KernelsOff:
		return nil, nil
	case session.KernelsAuto, session.KernelsOn:
	default:
		return nil, fmt.Errorf("--check-kernels %q: must be auto, on or off", f.CheckKernels)
	}
	provider := session.ProviderOf(b)
	if verify == rewrite.VerifyOff || provider == "" {
		return nil, nil
	}
	p, err := prober.New(f.Onnxruntime, f.KernelsLib, provider)
	if err != nil && f.CheckKernels == session.KernelsOn {
		return nil, err
	}
	if errors.Is(err, prober.ErrBrokenKernels) && !f.Assume {
		return nil, cli.Environment(fmt.Errorf("%w\n(use --check-kernels off to patch without running them)", err))
	}
	if err != nil {
		a.Detail("the check does not run the kernels: %s (run mojo-patch doctor for details)", cli.FirstLine(err))
	}
	return p, nil
}

// Opens opens the patched model where it will run. The error has an exit code.
func (p *Plan) Opens(m *onnx.Model, path string, r *rewrite.Report) (err error) {
	if p.open != nil && r.Changed {
		r.Runtime, err = p.open.check(p.app, m, path, p.reading()...)
	}
	return err
}

// reading returns the options for reading the model.
func (p *Plan) reading() []onnx.ReadOption {
	if p.allowMissing {
		return []onnx.ReadOption{onnx.AllowMissingData()}
	}
	return nil
}

// search reads a model and calls do, which finds and perhaps replaces its sites. Close the model after use.
func (p *Plan) search(path string, do func(*onnx.Model) (*rewrite.Report, error)) (m *onnx.Model, r *rewrite.Report,
	err error) {
	start := time.Now()
	if err := p.Planned.Fits(path, p.set.Digest()); err != nil {
		return nil, nil, err
	}
	m, err = p.app.Read(path, p.reading()...)
	if err != nil {
		return nil, nil, err
	}
	digest := ""
	if p.Digests() {
		digest, err = onnx.SHA256(path)
	}
	if p.HTML != "" {
		p.page = page.Begin(m, cli.Version())
	}
	readMS := cli.Milliseconds(start)
	if err == nil {
		r, err = do(m)
	}
	if err = precision.Strictly(err); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
	}
	r.Input.SHA256, r.TimeMS.Read = digest, readMS
	return m, r, nil
}

// Find plans from the flags, and finds the sites of a model with do. If a flag of --for does not apply to the model, it
// begins again without it. End the plan and close the model after use.
func (f *PlanFlags) Find(a *cli.App, c *cobra.Command, path string,
	do func(*Plan, *onnx.Model) (*rewrite.Report, error)) (*Plan, *onnx.Model, *rewrite.Report, error) {
	for {
		p, err := f.Begin(a)
		if err != nil {
			return nil, nil, nil, err
		}
		m, r, err := p.search(path, func(m *onnx.Model) (*rewrite.Report, error) { return do(p, m) })
		if err == nil {
			r.Preset = f.Preset.report
			f.Preset.say(a)
			return p, m, r, nil
		}
		p.End()
		if !f.Preset.leaveOut(c, err) {
			return nil, nil, nil, err
		}
	}
}

// Enough returns an error under --require if no block is fused.
func (p *Plan) Enough(r *rewrite.Report) error {
	if p.require && r.Blocks() == 0 {
		return cli.ExitWith(cli.ExitNothing,
			fmt.Errorf("%s: nothing was fused, so nothing is written (--require)", r.Input.Path))
	}
	return nil
}

// available returns an error unless a kernel of a library can be used.
func available(kernels []registry.KernelReport) error {
	reason := "no kernel is registered"
	for i, k := range kernels {
		if k.Available && k.Device != registry.DeviceAny {
			return nil
		}
		if i == 0 {
			reason = k.Reason
		}
	}
	return cli.Environment(
		fmt.Errorf("no kernel is available: %s\n(use --assume-available to patch for another machine)", reason))
}

// kernelIDs lists the values of --include, each with a description after a tab.
func kernelIDs() []string {
	ids := []string{rewrite.Auto + "\tevery kernel that is available", rewrite.None + "\tno kernel"}
	for _, k := range registry.ScanAllKernels() {
		ids = append(ids, k.ID+"\t"+k.Summary)
	}
	return ids
}

func verifyModes() []string {
	return []string{string(rewrite.VerifyOff), string(rewrite.VerifyDistinct), string(rewrite.VerifyAll)}
}

// The values of --quantized.
const (
	QuantizedKeep = "keep"
	QuantizedMojo = "mojo"
)

// The values of --past-length.
const (
	PastLengthOne  = "one"
	pastLengthRows = "rows"
)
