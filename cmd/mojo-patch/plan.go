package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// planFlags select the sites and how they are checked; match and apply share them.
type planFlags struct {
	include      string
	only, skip   []string
	node         string
	sites        []string
	verify       string
	checkKernels string
	kernelsLib   string
	onnxruntime  string
	require      bool
	allowMissing bool
	assume       bool
	inline       inlineFlag
	devices      deviceFlag
	patterns     patternFlag
	target       targetFlags
	lastLogits   bool
	free         []string // dimensions; only for apply
	extendMasks  bool     // with free
	recorded     func(*onnx.Model) ([]golden.Case, error)
	dtype        string
	safe         safeFlags
	golden       string // recorded cases; only for apply
	runsOn       string
	merge        bool          // merge products; only for apply
	quantised    string        // how to treat products that are quantized already; only for apply
	activations  string        // of these; only for apply
	cache        string        // how caches are kept; only for apply
	pastLength   string        // with cache; "" if not given
	mlaCache     bool          // only for apply
	learn        learnFlag     // only for apply
	planned      planFileFlags // of commands that apply a plan
	html         string        // the page to write
	preset       presetFlag
}

func (f *planFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	f.preset.flags(c)
	fl.StringVar(&f.include, "include", rewrite.Auto,
		"kernels to apply: auto, none, or ids separated by commas (see mojo-patch kernels)")
	fl.StringSliceVar(&f.only, "only", nil, "replace only the sites of these patterns")
	fl.StringSliceVar(&f.skip, "skip", nil, "do not replace the sites of these patterns")
	fl.StringVar(&f.node, "node", "", "replace only sites whose last node has a name that matches this regular "+
		"expression")
	fl.StringArrayVar(&f.sites, "site", nil, "replace only the site with this id, as --json reports it (repeatable)")
	fl.StringVar(&f.verify, "verify", string(rewrite.VerifyDistinct),
		"which sites to evaluate: off, distinct (one of each kind) or all")
	fl.StringVar(&f.checkKernels, "check-kernels", kernelsAuto,
		"run the kernels, or the target's ops, on the checked sites, and open the patched model: auto (if "+
			"onnxruntime is found), on or off")
	libraryFlags(c, &f.onnxruntime, &f.kernelsLib)
	f.patterns.flags(c)
	f.inline.flags(c)
	fl.BoolVar(&f.require, "require", false, "exit with 3 if nothing can be fused")
	fl.BoolVar(&f.allowMissing, "allow-missing-weights", false, "accept a graph whose external data is missing: "+
		"sites are checked with random numbers instead of weights")
	fl.BoolVar(&f.assume, "assume-available", false,
		"assume that the kernels of the CPU, or of the devices in --backend, are available: the model will run on "+
			"another machine")
	f.devices.flags(c, "devices whose kernels to use")
	f.target.flags(c)
	fl.BoolVar(&f.lastLogits, "last-logits", false,
		"compute the logits only of the last position (left-padded batches), not of every position")
	dtypeFlag(c, &f.dtype, "convert the model first: float32, float16 or bfloat16 (default: keep its type)")
	f.safe.flags(c, "the cases of --golden, or random inputs")
	fl.StringVar(&f.runsOn, "runs-on", "",
		"rewrite nodes that this provider of onnxruntime has no kernel for: cpu or cuda, with @1.29 for a version "+
			"(default: the installed one)")
	completeValues(c, "runs-on", func() []string { return []string{"cpu", "cuda"} }, false)
	fl.StringVar(&f.html, "html", "",
		"also write the report as one page: each kind of block before and after, its check, unfused sites and reasons")
	completeFile(c, "html", "html")
	completeValues(c, "include", kernelIDs, true)
	completeValues(c, "only", patternNames, true)
	completeValues(c, "skip", patternNames, true)
	completeValues(c, "verify", verifyModes, false)
	completeValues(c, "check-kernels", kernelModes, false)
}

// plan is a patcher with its resources, after all flags were parsed.
type plan struct {
	*planFlags
	*rewrite.Patcher
	app  *app
	set  *patterns.Set
	end  func()      // releases the patcher's resources
	open *opener     // for patched models; nil if they are not opened
	page *page.Apply // nil if no page is requested
}

// plan makes a plan from the flags.
func (f *planFlags) plan(a *app) (*plan, error) {
	if f.html != "" {
		if err := writable(f.html); err != nil {
			return nil, fmt.Errorf("--html: %w", err)
		}
	}
	verify, err := rewrite.ParseVerify(f.verify)
	if err != nil {
		return nil, fmt.Errorf("--verify: %w", err)
	}
	set, err := f.patterns.set()
	if err != nil {
		return nil, fmt.Errorf("--patterns: %w", err)
	}
	if err := knownPatterns(set, append(slices.Clone(f.only), f.skip...)); err != nil {
		return nil, err
	}
	functions, err := f.inline.value()
	if err != nil {
		return nil, err
	}
	backend, err := f.devices.backend()
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
	step, end := a.progress("checking site")
	request := rewrite.Request{Kernels: f.include, Library: f.kernelsLib, AssumeAvailable: f.assume, Backend: backend,
		Target: t, Shapes: shapes, AccuracyLevel: f.target.accuracy, Patterns: set, Sites: f.sites,
		Plan: f.planned.file, Learn: f.learn.path != "", Verify: verify, DrawMissing: f.allowMissing,
		Free: f.free, ExtendMasks: f.extendMasks, Recorded: f.recorded, LastLogits: f.lastLogits,
		LatentCache: f.mlaCache, Inline: functions,
		Version: toolVersion(), Progress: step,
		KeepPattern: func(name string) bool {
			return (len(f.only) == 0 || slices.Contains(f.only, name)) && !slices.Contains(f.skip, name)
		},
		KeepNode: func(n *onnx.Node) bool { return node.MatchString(n.Name) }}
	if request.DType, err = dtypeOf(f.dtype); err != nil {
		return nil, err
	}
	if request.Safe, err = f.safe.options(request.DType, f.golden); err != nil {
		return nil, err
	}
	if f.runsOn != "" {
		if t != nil {
			return nil, errors.New("--runs-on supports only fused ops and standard ops: it cannot be combined with " +
				"--target")
		}
		lib, _ := ort.Find(f.onnxruntime) // any version will do if onnxruntime is missing
		if request.RunsOn, err = runson.ParsePlace(f.runsOn, lib.Version); err != nil {
			return nil, fmt.Errorf("--runs-on: %w", err)
		}
	}
	switch f.quantised {
	case "", quantisedKeep:
		if f.activations != "" {
			return nil, fmt.Errorf("--activations requires --quantized %s", quantisedMojo)
		}
	case quantisedMojo:
		if t != nil {
			return nil, fmt.Errorf("--quantized %s makes fused ops: it cannot be combined with --target", quantisedMojo)
		}
		request.OwnProducts = cmp.Or(f.activations, activationKinds[0])
		if !slices.Contains(activationKinds, request.OwnProducts) {
			return nil, fmt.Errorf("--activations %q: must be one of %s", request.OwnProducts,
				strings.Join(activationKinds, ", "))
		}
	default:
		return nil, fmt.Errorf("--quantized %q: must be %s or %s", f.quantised, quantisedKeep, quantisedMojo)
	}
	if f.merge {
		request.Merge = rewrite.MergeAll
	}
	if f.cache != "" {
		length, err := staticcache.Parse(f.cache)
		if err != nil {
			return nil, fmt.Errorf("--cache %w", err)
		}
		request.StaticCache = &staticcache.Options{Length: length, PastLength: f.pastLength == pastLengthOne,
			RowLengths: f.pastLength == pastLengthRows}
		if f.pastLength != "" && !request.StaticCache.PastLength && !request.StaticCache.RowLengths {
			return nil, fmt.Errorf("--past-length=%s: use --past-length or --past-length=%s", f.pastLength,
				pastLengthRows)
		}
	}
	var kernels *prober
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
	if place := request.RunsOn; place != nil && place.Device != deviceCPU {
		opens = nil
	}
	switch {
	case kernels != nil:
		request.KernelCheck = kernels.run
	case t != nil && opens != nil && verify != rewrite.VerifyOff:
		kernels = &prober{options: []ort.Option{ort.WithLibrary(opens.lib.Path), ort.WithThreads(1)},
			sessions: map[string]*ort.Session{}}
		request.Runtime = kernels.runSite
	}
	if kernels != nil {
		clear := end
		end = func() { clear(); kernels.close() }
	}
	patcher, err := rewrite.New(request)
	if err == nil && t == nil && f.include == rewrite.Auto && len(f.patterns.paths) == 0 { // those may need no kernel
		err = available(patcher.Kernels())
	}
	if err != nil {
		end()
		return nil, err
	}
	return &plan{f, patcher, a, set, end, opens, nil}, nil
}

// opener returns the opener for the patched model, or nil if onnxruntime's CPU provider will not open it.
func (f *planFlags) opener(a *app, t *target.Target) (*opener, error) {
	if f.checkKernels == kernelsOff || t != nil && !t.OnCPU {
		return nil, nil
	}
	lib, err := ort.Find(f.onnxruntime)
	switch {
	case err == nil:
		return newOpener(lib, f.kernelsLib, t == nil), nil
	case f.checkKernels == kernelsOn || f.onnxruntime != "":
		return nil, err
	}
	a.detail("the patched model will not be opened: %s", firstLine(err))
	return nil, nil
}

// prober returns the prober for kernels in the check, or nil if kernels do not run.
func (f *planFlags) prober(a *app, verify rewrite.Verify, b registry.Backend) (*prober, error) {
	switch f.checkKernels {
	case kernelsOff:
		return nil, nil
	case kernelsAuto, kernelsOn:
	default:
		return nil, fmt.Errorf("--check-kernels %q: must be auto, on or off", f.checkKernels)
	}
	provider := providerOf(b)
	if verify == rewrite.VerifyOff || provider == "" {
		return nil, nil
	}
	p, err := newProber(f.onnxruntime, f.kernelsLib, provider)
	if err != nil && f.checkKernels == kernelsOn {
		return nil, err
	}
	if errors.Is(err, errBrokenKernels) && !f.assume {
		return nil, environment(fmt.Errorf("%w\n(use --check-kernels off to patch without running them)", err))
	}
	if err != nil {
		a.detail("the check does not run the kernels: %s (run mojo-patch doctor for details)", firstLine(err))
	}
	return p, nil
}

// opens opens the patched model where it will run. The error has an exit code.
func (p *plan) opens(m *onnx.Model, path string, r *rewrite.Report) (err error) {
	if p.open != nil && r.Changed {
		r.Runtime, err = p.open.check(p.app, m, path, p.reading()...)
	}
	return err
}

// reading returns the options for reading the model.
func (p *plan) reading() []onnx.ReadOption {
	if p.allowMissing {
		return []onnx.ReadOption{onnx.AllowMissingData()}
	}
	return nil
}

// search reads a model and calls do, which finds and perhaps replaces its sites. Close the model after use.
func (p *plan) search(path string, do func(*onnx.Model) (*rewrite.Report, error)) (m *onnx.Model, r *rewrite.Report,
	err error) {
	start := time.Now()
	if err := p.planned.fits(path, p.set.Digest()); err != nil {
		return nil, nil, err
	}
	m, err = p.app.read(path, p.reading()...)
	if err != nil {
		return nil, nil, err
	}
	digest := ""
	if p.digests() {
		digest, err = onnx.SHA256(path)
	}
	if p.html != "" {
		p.page = page.Begin(m, toolVersion())
	}
	readMS := milliseconds(start)
	if err == nil {
		r, err = do(m)
	}
	if err = strictly(err); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
	}
	r.Input.SHA256, r.TimeMS.Read = digest, readMS
	return m, r, nil
}

// find plans from the flags, and finds the sites of a model with do. If a flag of --for does not apply to the model, it
// begins again without it. End the plan and close the model after use.
func (f *planFlags) find(a *app, c *cobra.Command, path string, do func(*plan, *onnx.Model) (*rewrite.Report, error)) (
	*plan, *onnx.Model, *rewrite.Report, error) {
	for {
		p, err := f.plan(a)
		if err != nil {
			return nil, nil, nil, err
		}
		m, r, err := p.search(path, func(m *onnx.Model) (*rewrite.Report, error) { return do(p, m) })
		if err == nil {
			r.Preset = f.preset.report
			f.preset.say(a)
			return p, m, r, nil
		}
		p.end()
		if !f.preset.leaveOut(c, err) {
			return nil, nil, nil, err
		}
	}
}

// enough returns an error under --require if no block is fused.
func (p *plan) enough(r *rewrite.Report) error {
	if p.require && r.Blocks() == 0 {
		return &exitError{exitNothing,
			fmt.Errorf("%s: nothing was fused, so nothing is written (--require)", r.Input.Path)}
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
	return environment(
		fmt.Errorf("no kernel is available: %s\n(use --assume-available to patch for another machine)", reason))
}

func knownPatterns(set *patterns.Set, names []string) error {
	known := namesOf(set)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown pattern %q%s; the patterns are %s", name, english.Suggestion(name, known),
				strings.Join(known, ", "))
		}
	}
	return nil
}

func patternNames() []string { return namesOf(patterns.Builtin()) }

// inlineFlag is --inline, for every command that looks for patterns.
type inlineFlag struct{ mode string }

func (f *inlineFlag) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "inline", string(inline.Auto),
		"functions of the model to inline first: auto (functions that call or are called by functions, "+
			"or that are a block or contain a part of one), all or none")
	completeValues(c, "inline", func() []string {
		return []string{string(inline.Auto), string(inline.All), string(inline.None)}
	}, false)
}

func (f *inlineFlag) value() (inline.Mode, error) {
	mode, err := inline.ParseMode(f.mode)
	if err != nil {
		return "", fmt.Errorf("--inline: %w", err)
	}
	return mode, nil
}

// patternFlag is --patterns, the user's pattern files, for every command that looks for patterns.
type patternFlag struct{ paths []string }

func (f *patternFlag) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.paths, "patterns", nil,
		"also search for the patterns of this file, or of the .pat files in this folder (repeatable; see "+
			"docs/patterns.md)")
	completeFile(c, "patterns", "pat")
}

// set returns the patterns of the files, followed by the built-in ones.
func (f *patternFlag) set() (*patterns.Set, error) {
	if len(f.paths) == 0 {
		return patterns.Builtin(), nil
	}
	return patterns.Load(f.paths...)
}

// namesOf lists the distinct names in a set: a pattern may be written in several ways.
func namesOf(s *patterns.Set) []string {
	var names []string
	for _, p := range s.Patterns {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// targetFlags name the target that a model is patched for.
type targetFlags struct {
	name     string
	shapes   []string
	accuracy int64
}

func (f *targetFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "target", target.Mojo,
		"ops that replace a site: mojo (fused ops), or the ops of another runtime: "+otherTargets())
	c.Flags().StringArrayVar(&f.shapes, "shape", nil,
		"with --target: fix the shape of an input, such as input_ids=1x128, or a dimension, such as sequence=128 "+
			"(repeatable)")
	c.Flags().Int64Var(&f.accuracy, "accuracy-level", 0,
		"with --target ort: how products with quantized weights round activations: 0 (not at all) or 4 (to 8 bits: "+
			"faster, but other tokens)")
	completeValues(c, "target", targetNames, false)
	// these are about kernels of fused ops
	for _, other := range []string{"include", "backend", "kernels-lib", "assume-available"} {
		c.MarkFlagsMutuallyExclusive("target", other)
	}
}

// of returns the target, or nil for fused ops, and the fixed shapes of its inputs.
func (f *targetFlags) of() (*target.Target, *target.Shapes, error) {
	t, err := target.Lookup(f.name)
	if err != nil {
		return nil, nil, fmt.Errorf("--target: %w", err)
	}
	if t == nil && len(f.shapes) > 0 {
		return nil, nil, fmt.Errorf("--shape requires --target")
	}
	if f.accuracy != 0 && f.accuracy != 4 {
		return nil, nil, fmt.Errorf("--accuracy-level %d: must be 0 or 4", f.accuracy)
	}
	if f.accuracy != 0 && f.name != "ort" {
		return nil, nil, fmt.Errorf("--accuracy-level requires --target ort")
	}
	shapes, err := target.ParseShapes(f.shapes)
	if err != nil {
		return nil, nil, fmt.Errorf("--shape %w", err)
	}
	return t, shapes, nil
}

func targetNames() []string {
	names := []string{target.Mojo}
	for _, t := range target.All() {
		names = append(names, t.Name)
	}
	return names
}

func otherTargets() string { return strings.Join(targetNames()[1:], ", ") }
