package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/spf13/cobra"
)

// planFlags say which sites are looked for and how they are checked; match and apply share them.
type planFlags struct {
	include      string
	only, skip   []string
	node         string
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
}

func (f *planFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.include, "include", rewrite.Auto, "kernels to apply: auto, none, or ids separated by commas (see mojo-patch kernels)")
	fl.StringSliceVar(&f.only, "only", nil, "take only the sites of these patterns")
	fl.StringSliceVar(&f.skip, "skip", nil, "leave out the sites of these patterns")
	fl.StringVar(&f.node, "node", "", "take only sites whose last node has a name that this regular expression fits")
	fl.StringVar(&f.verify, "verify", string(rewrite.VerifyDistinct), "which sites are evaluated: off, distinct (one of each kind), all")
	fl.StringVar(&f.checkKernels, "check-kernels", kernelsAuto, "run the kernels on the checked sites, too: auto (where onnxruntime is found), on, off")
	libraryFlags(c, &f.onnxruntime, &f.kernelsLib)
	f.patterns.flags(c)
	f.inline.flags(c)
	fl.BoolVar(&f.require, "require", false, "exit with 3 when there is nothing to fuse")
	fl.BoolVar(&f.allowMissing, "allow-missing-weights", false, "take a graph whose external data is not there")
	fl.BoolVar(&f.assume, "assume-available", false, "take the kernels of the CPU, or of the devices that --backend names, for available: the model will run on another machine")
	f.devices.flags(c, "devices whose kernels are taken")
	f.target.flags(c)
	fl.BoolVar(&f.lastLogits, "last-logits", false, "compute the logits of the last position only (left-padded batches), not those of every one")
	completeValues(c, "include", kernelIDs, true)
	completeValues(c, "only", patternNames, true)
	completeValues(c, "skip", patternNames, true)
	completeValues(c, "verify", verifyModes, false)
	completeValues(c, "check-kernels", kernelModes, false)
}

// plan is a search that is ready to begin: every flag was understood.
type plan struct {
	*planFlags
	app     *app
	options []rewrite.Option
	backend rewrite.Backend
	input   *rewrite.FileReport
	readMS  float64
	prepare func(*onnx.Model) error // for the target
	end     func()                  // releases what the options hold
}

// plan translates the flags.
func (f *planFlags) plan(a *app) (*plan, error) {
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
	inline, err := f.inline.option()
	if err != nil {
		return nil, err
	}
	p := &plan{planFlags: f, app: a}
	if p.backend, err = f.devices.backend(); err != nil {
		return nil, err
	}
	t, prepare, err := f.target.of()
	if err != nil {
		return nil, err
	}
	p.prepare = prepare
	step, clear := a.progress("checking site")
	p.end = clear
	p.options = []rewrite.Option{rewrite.WithVerify(verify), rewrite.WithToolVersion(toolVersion()), rewrite.WithProgress(step),
		rewrite.WithBackend(p.backend), rewrite.WithPatterns(set), rewrite.WithTarget(t), inline, rewrite.WithPatternFilter(func(name string) bool {
			return (len(f.only) == 0 || slices.Contains(f.only, name)) && !slices.Contains(f.skip, name)
		})}
	if f.node != "" {
		re, err := regexp.Compile(f.node)
		if err != nil {
			return nil, fmt.Errorf("--node: %w", err)
		}
		p.options = append(p.options, rewrite.WithNodeFilter(func(n *onnx.Node) bool { return re.MatchString(n.Name) }))
	}
	if f.kernelsLib != "" {
		p.options = append(p.options, rewrite.WithLibrary(f.kernelsLib))
	}
	if f.assume {
		p.options = append(p.options, rewrite.AssumeAvailable())
	}
	if t != nil {
		return p, nil
	}
	kernels, err := f.prober(a, verify, p.backend)
	if err != nil {
		return nil, err
	}
	if kernels != nil {
		p.options = append(p.options, rewrite.WithKernelCheck(kernels.run))
		p.end = func() { clear(); kernels.close() }
	}
	return p, nil
}

// prober returns what runs the kernels during the check, nil when they are not to be run.
func (f *planFlags) prober(a *app, verify rewrite.Verify, b rewrite.Backend) (*prober, error) {
	switch f.checkKernels {
	case kernelsOff:
		return nil, nil
	case kernelsAuto, kernelsOn:
	default:
		return nil, fmt.Errorf("--check-kernels %q: it is one of auto, on, off", f.checkKernels)
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
		return nil, environment(fmt.Errorf("%w\n(--check-kernels off patches without running them)", err))
	}
	if err != nil {
		a.detail("the kernels are not run during the check: %s (mojo-patch doctor says more)", firstLine(err))
	}
	return p, nil
}

// read reads the model that is searched.
func (p *plan) read(path string) (*onnx.Model, error) {
	var options []onnx.ReadOption
	if p.allowMissing {
		options = append(options, onnx.AllowMissingData())
	}
	start := time.Now()
	m, err := p.app.read(path, options...)
	if err != nil {
		return nil, err
	}
	p.input = rewrite.DescribeModel(m, path)
	if p.app.json { // nothing else shows it
		if p.input.SHA256, err = onnx.SHA256(path); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	p.readMS = milliseconds(start)
	return m, nil
}

// ready changes the model as the flags ask before sites are looked for. It says what the model computes logits of.
func (p *plan) ready(m *onnx.Model) (logits string, err error) {
	if p.lastLogits {
		switch err := convert.LastLogits(m); {
		case errors.Is(err, convert.ErrLastOnly):
			logits = rewrite.LogitsWereLast
		case err != nil:
			return "", fmt.Errorf("--last-logits: %w", err)
		default:
			logits = rewrite.LogitsLast
		}
	}
	return logits, p.prepare(m)
}

// run finds, checks and rewrites the sites of a model that read gave.
func (p *plan) run(m *onnx.Model, more ...rewrite.Option) (*rewrite.Report, error) {
	logits, err := p.ready(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.input.Path, err)
	}
	r, err := rewrite.ApplyDefaultKernels(m, p.include, append(slices.Clip(p.options), more...)...)
	if err != nil {
		return nil, err
	}
	r.Input, r.TimeMS.Read, r.Logits = p.input, p.readMS, logits
	if len(p.patterns.paths) > 0 { // these may need no kernel
		return r, nil
	}
	return r, unavailable(r, p.include)
}

// enough errs under --require when nothing is fused.
func (p *plan) enough(r *rewrite.Report) error {
	if p.require && r.Fused() == 0 {
		return &exitError{exitNothing, fmt.Errorf("%s: nothing was fused, and --require is given: nothing is written", p.input.Path)}
	}
	return nil
}

// unavailable errs when auto found no kernel of a library that it could use.
func unavailable(r *rewrite.Report, include string) error {
	if include != rewrite.Auto || r.Target != "" {
		return nil
	}
	for _, k := range r.Kernels {
		if k.Available && k.Device != rewrite.DeviceAny {
			return nil
		}
	}
	reason := "none is registered"
	if len(r.Kernels) > 0 {
		reason = r.Kernels[0].Reason
	}
	return environment(fmt.Errorf("no kernel is available: %s\n(--assume-available patches for another machine)", reason))
}

// knownPatterns errs on a name that no pattern of the set has.
func knownPatterns(set *patterns.Set, names []string) error {
	known := namesOf(set)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no pattern %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// patternNames lists the built-in patterns.
func patternNames() []string { return namesOf(patterns.Builtin()) }
