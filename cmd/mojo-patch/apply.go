package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// applyFlags are the flags of apply.
type applyFlags struct {
	out          string
	include      string
	only, skip   []string
	node         string
	verify       string
	checkKernels string
	kernelsLib   string
	onnxruntime  string
	golden       string
	evaluator    bool
	require      bool
	dryRun       bool
	keepFailed   bool
	allowMissing bool
	assume       bool
	externalOver int64
}

func newApply(a *app) *cobra.Command {
	f := &applyFlags{}
	c := &cobra.Command{
		Use:   "apply MODEL",
		Short: "Find, check and rewrite blocks into fused ops",
		Long: `apply looks for the blocks that the kernels take, evaluates each of them and its replacement on the same hard inputs,
rewrites those that agree, and writes a new model. A site whose results differ, or whose types the kernel lacks, is
left as it was and reported. Where onnxruntime is found, the kernel itself is run on each distinct site as well.

The input is never written to. A model over 2 GB gets its weights in OUT.data. So does a model with external data, unless
OUT lies in the same folder: then it refers to the same data files, and needs them.`,
		Example: `  mojo-patch apply model.onnx
  mojo-patch apply model.onnx -o patched.onnx --include cpu_fused_rmsnorm,cpu_fused_rope
  mojo-patch apply model.onnx -o patched.onnx --golden recorded.npz --require
  mojo-patch apply model.onnx --dry-run --json`,
		Args: modelArgs(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.out == "" && c.Flags().Changed("output") {
				return errors.New("the path after -o is empty")
			}
			return f.apply(a, args[0])
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "file to write (default: MODEL with .mojo.onnx for .onnx)")
	fl.StringVar(&f.include, "include", rewrite.Auto, "kernels to apply: auto, none, or ids separated by commas (see mojo-patch kernels)")
	fl.StringSliceVar(&f.only, "only", nil, "rewrite only the sites of these patterns")
	fl.StringSliceVar(&f.skip, "skip", nil, "leave out the sites of these patterns")
	fl.StringVar(&f.node, "node", "", "rewrite only sites whose last node has a name that this regular expression fits")
	fl.StringVar(&f.verify, "verify", string(rewrite.VerifyDistinct), "which sites are evaluated: off, distinct (one of each kind), all")
	fl.StringVar(&f.checkKernels, "check-kernels", kernelsAuto, "run the kernels on the checked sites, too: auto (where onnxruntime is found), on, off")
	fl.StringVar(&f.kernelsLib, "kernels-lib", "", "the kernel library, or its folder (default: $MOJO_OPS_LIBRARY, beside the program, build/)")
	fl.StringVar(&f.onnxruntime, "onnxruntime", "", "the onnxruntime library, or its folder (default: $ONNXRUNTIME_LIB, cache folder, Python environments)")
	fl.StringVar(&f.golden, "golden", "", "recorded cases that the patched model must reproduce, or nothing is written")
	fl.BoolVar(&f.evaluator, "evaluator", false, "run the patched model for --golden in the built-in evaluator")
	fl.BoolVar(&f.require, "require", false, "exit with 3 when nothing was fused")
	fl.BoolVar(&f.dryRun, "dry-run", false, "find, check and report; write nothing")
	fl.BoolVar(&f.keepFailed, "keep-failed", false, "keep the output when --golden fails")
	fl.BoolVar(&f.allowMissing, "allow-missing-weights", false, "patch a graph whose external data is not there")
	fl.BoolVar(&f.assume, "assume-available", false, "take every kernel for available: the model will run on another machine")
	fl.Int64Var(&f.externalOver, "external-data-over", 0, "put weights of more than this many bytes into OUT.data (0: only where needed)")
	a.jsonFlag(c)
	return c
}

func (f *applyFlags) apply(a *app, path string) error {
	options, end, err := f.options(a)
	if err != nil {
		return err
	}
	defer end()
	out := f.out
	if out == "" {
		out = strings.TrimSuffix(path, ".onnx") + ".mojo.onnx"
	}
	if same(path, out) {
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", out)
	}
	if err := writable(out); err != nil && !f.dryRun {
		return err
	}
	var read []onnx.ReadOption
	if f.allowMissing {
		read = append(read, onnx.AllowMissingData())
	}
	start := time.Now()
	m, err := a.read(path, read...)
	if err != nil {
		return err
	}
	defer m.Close()
	cases, err := f.cases(m)
	if err != nil {
		return err
	}
	input := rewrite.DescribeModel(m, path)
	if input.SHA256, err = m.SHA256(); err != nil {
		return err
	}
	readMS := milliseconds(start)
	r, err := rewrite.ApplyDefaultKernels(m, f.include, options...)
	if err != nil {
		return err
	}
	r.Input, r.TimeMS.Read = input, readMS
	if err := unavailable(r, f.include); err != nil {
		return err
	}
	var failure error
	var data []string
	written := !f.dryRun && !(f.require && r.Fused() == 0)
	if written {
		start = time.Now()
		failure = f.write(a, m, out, cases)
		var check *exitError
		if failure != nil && !errors.As(failure, &check) {
			return failure
		}
		written = failure == nil || f.keepFailed
		if written {
			r.Output = rewrite.DescribeModel(m, out)
			r.Output.SHA256, data = readBack(a, out)
		}
		r.TimeMS.Write = milliseconds(start)
	}
	r.PeakRSSBytes = peakRSS()
	if err := f.report(a, r, written, data); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	if f.require && r.Fused() == 0 {
		return &exitError{exitNothing, fmt.Errorf("%s: nothing was fused, and --require is given: nothing is written", path)}
	}
	return nil
}

func (f *applyFlags) report(a *app, r *rewrite.Report, written bool, data []string) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	}
	w := a.human()
	if err := r.WriteText(w); err != nil {
		return err
	}
	if a.verbose {
		for _, s := range r.Sites {
			a.detail("%s", strings.TrimRight(fmt.Sprintf("%s %s at %s %s", s.Status, s.Pattern, s.Node, s.Reason), " "))
		}
	}
	if written {
		weights := ""
		if len(data) > 0 {
			weights = ", weights in " + strings.Join(data[:min(len(data), 3)], ", ")
			if len(data) > 3 {
				weights += fmt.Sprintf(" and %s", counted(len(data)-3, "other file"))
			}
		}
		a.say("wrote %s: %d nodes, before %d%s", r.Output.Path, r.Output.Nodes, r.Input.Nodes, weights)
	}
	return nil
}

// unavailable errs when auto found no kernel at all that it could use.
func unavailable(r *rewrite.Report, include string) error {
	if include != rewrite.Auto {
		return nil
	}
	for _, k := range r.Kernels {
		if k.Available {
			return nil
		}
	}
	reason := "none is registered"
	if len(r.Kernels) > 0 {
		reason = r.Kernels[0].Reason
	}
	return environment(fmt.Errorf("no kernel is available: %s\n(--assume-available patches for another machine)", reason))
}

// same says whether both paths lead to one file, existing or not.
func same(x, y string) bool {
	a, errA := os.Stat(x)
	b, errB := os.Stat(y)
	if errA == nil && errB == nil {
		return os.SameFile(a, b)
	}
	p, errP := filepath.Abs(x)
	q, errQ := filepath.Abs(y)
	return errP == nil && errQ == nil && p == q
}

// readBack gives the hash of the file that was written, and the names of the files with its external data.
func readBack(a *app, path string) (digest string, data []string) {
	m, err := a.read(path, onnx.AllowMissingData())
	if err != nil {
		return "", nil
	}
	defer m.Close()
	digest, _ = m.SHA256()
	files, _ := m.Files()
	for i, f := range files {
		if i > 0 {
			data = append(data, f.Path)
		}
	}
	return digest, data
}

func milliseconds(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }
