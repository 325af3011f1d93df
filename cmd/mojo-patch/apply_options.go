package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// options translates the flags. end releases what they hold.
func (f *applyFlags) options(a *app) (options []rewrite.Option, end func(), err error) {
	verify, err := rewrite.ParseVerify(f.verify)
	if err != nil {
		return nil, nil, fmt.Errorf("--verify: %w", err)
	}
	if err := knownPatterns(append(slices.Clone(f.only), f.skip...)); err != nil {
		return nil, nil, err
	}
	if f.externalOver < 0 {
		return nil, nil, fmt.Errorf("--external-data-over %d: it is a number of bytes, 0 or more", f.externalOver)
	}
	if f.golden == "" && (f.keepFailed || f.evaluator) {
		return nil, nil, fmt.Errorf("--keep-failed and --evaluator are about --golden, which is not given")
	}
	step, clear := a.progress("checking site")
	options = []rewrite.Option{rewrite.WithVerify(verify), rewrite.WithToolVersion(toolVersion()), rewrite.WithProgress(step),
		rewrite.WithPatternFilter(func(name string) bool {
			return (len(f.only) == 0 || slices.Contains(f.only, name)) && !slices.Contains(f.skip, name)
		})}
	if f.node != "" {
		re, err := regexp.Compile(f.node)
		if err != nil {
			return nil, nil, fmt.Errorf("--node: %w", err)
		}
		options = append(options, rewrite.WithNodeFilter(func(n *onnx.Node) bool { return re.MatchString(n.Name) }))
	}
	if f.kernelsLib != "" {
		options = append(options, rewrite.WithLibrary(f.kernelsLib))
	}
	if f.assume {
		options = append(options, rewrite.AssumeAvailable())
	}
	if f.dryRun {
		options = append(options, rewrite.WithDryRun())
	}
	p, err := f.prober(a, verify)
	if err != nil {
		return nil, nil, err
	}
	if p == nil {
		return options, clear, nil
	}
	return append(options, rewrite.WithKernelCheck(p.run)), func() { clear(); p.close() }, nil
}

// prober gives what runs the kernels during the check, nil when they are not to be run.
func (f *applyFlags) prober(a *app, verify rewrite.Verify) (*prober, error) {
	switch f.checkKernels {
	case kernelsOff:
		return nil, nil
	case kernelsAuto, kernelsOn:
	default:
		return nil, fmt.Errorf("--check-kernels %q: it is one of auto, on, off", f.checkKernels)
	}
	if verify == rewrite.VerifyOff {
		return nil, nil
	}
	p, err := newProber(f.onnxruntime, f.kernelsLib)
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

func knownPatterns(names []string) error {
	var known []string
	for _, p := range patterns.Builtin().Patterns {
		if !slices.Contains(known, p.Name) { // one pattern may be written in several ways under one name
			known = append(known, p.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no pattern %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
