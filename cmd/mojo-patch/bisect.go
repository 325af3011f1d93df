package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The values of --crash.
const (
	crashFails   = "fail"
	crashUnknown = "unknown"
)

type bisectFlags struct {
	plan      planFileFlags
	golden    string
	check     string
	out       string
	passing   string
	stateFile string
	extract   string
	work      string
	crash     string
	cases     int
	repeat    int
	timeout   time.Duration

	// flags of other commands, for child processes; the last two also run the original model
	match, run, inputs, criteria *pflag.FlagSet
	backend                      backend
	drawn                        inputFlags
}

func newBisect(a *app) *cobra.Command {
	f := &bisectFlags{}
	c := &cobra.Command{
		Use:   "bisect MODEL",
		Short: "Find the rewritten sites that put outputs out of tolerance",
		Long: `bisect patches some of the sites of a model, compares, and halves the set of sites until it has the
smallest sets with which the comparison fails: one site, or several that fail only together. It
continues until the other sites pass. The sites are those of a plan, or those that apply would
replace; the flags of match choose them.

It compares as diff does: it compares the outputs of the patched model with the original's outputs on
the same inputs, or with recorded outputs (--golden); the flags of diff set the tolerances. --check
runs your command in a shell instead, with the path of the patched model instead of {} (or after the
command, and in $MOJO_PATCH_MODEL): exit code 0 means passed, 125 unknown, others failed. For a check
whose result varies, use --repeat: it fails if one run fails.

bisect patches and runs models in child processes. A crash of onnxruntime or of a kernel, or a check
that takes longer than --timeout, counts as failed, or as unknown with --crash unknown. --state saves
the results after each check: the same command continues from there.

The weights are written once, to a temporary folder in --work; each patched model takes little more
space. --extract writes the nodes of the smallest failing sites as a model, with the inputs and
outputs that they have in the whole model, and a plan that patches it. Attach them to a bug report.

It exits with 3 if all sites together pass.`,
		Example: `  mojo-patch bisect model.onnx -o failing.json
  mojo-patch bisect model.onnx --plan plan.json --golden recorded.npz --atol 1e-3 --extract report
  mojo-patch bisect model.onnx --check 'python3 perplexity.py {}' --state bisect.json --timeout 10m
  mojo-patch bisect model.onnx --provider cuda --max-kl 1e-3 --passing good.json`,
		Args:              modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE:              func(c *cobra.Command, args []string) error { return f.bisect(a, c, args[0]) },
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "write the plan of the smallest sites that fail to this file")
	fl.StringVar(&f.passing, "passing", "", "write the plan of the other sites, which pass, to this file")
	fl.StringVar(&f.golden, "golden", "", "recorded cases: .npz, or a folder of ONNX test data")
	fl.StringVar(&f.check, "check", "", "command that decides whether a patched model is good, instead of the "+
		"comparison")
	fl.StringVar(&f.stateFile, "state", "", "file that keeps the results; if it exists, the search continues from it")
	fl.StringVar(&f.extract, "extract", "",
		"new folder for the smallest failing part as a model, with inputs and outputs")
	fl.StringVar(&f.work, "work", "", "folder for temporary models (default: the system's)")
	fl.StringVar(&f.crash, "crash", crashFails, "how to count a crash or a check past --timeout: fail or unknown")
	fl.IntVar(&f.cases, "cases", 1, "number of random cases")
	fl.IntVar(&f.repeat, "repeat", 1, "run each check up to this many times; it passes only if every run passes")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit of a check, such as 90s (default: no limit)")
	f.others(c)
	f.plan.flags(c)
	completeFile(c, "output", "json")
	completeFile(c, "passing", "json")
	completeFile(c, "state", "json")
	completeFile(c, "golden", "npz")
	completeValues(c, "crash", func() []string { return []string{crashFails, crashUnknown} }, false)
	c.MarkFlagsMutuallyExclusive("check", "golden")
	headings(c, "output golden check plan state extract provider json",
		"Search: passing cases repeat timeout crash work force", inputsHeading, boundsHeading,
		"Patching: target shape accuracy-level runs-on dtype last-logits html", safeHeading,
		"Sites: only skip node site include patterns inline verify check-kernels assume-available",
		"Runtime: backend provider-option provider-library provider-device provider-only kernels optimize "+
			"threads evaluator", pathsHeading)
	a.jsonFlag(c, "bisect")
	return c
}

// others adds the flags of match, run and diff that child processes get. A flag that several of them have is added
// once.
func (f *bisectFlags) others(c *cobra.Command) {
	of := func(add func(*cobra.Command), without ...string) *pflag.FlagSet {
		scratch := &cobra.Command{}
		add(scratch)
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		scratch.Flags().VisitAll(func(flag *pflag.Flag) {
			if !slices.Contains(without, flag.Name) {
				all.AddFlag(flag)
			}
		})
		return all
	}
	f.run = of(f.backend.flags)
	f.inputs = of(f.drawn.flags)
	f.criteria = of((&criteria{}).flags)
	f.match = of((&planFlags{}).flags, "require", "allow-missing-weights", "for")
	for _, set := range []*pflag.FlagSet{f.run, f.inputs, f.criteria, f.match} {
		c.Flags().AddFlagSet(set)
	}
}

// arguments returns those flags of a set that were given, in the form of command-line arguments.
func arguments(c *cobra.Command, set *pflag.FlagSet) []string {
	var names, args []string
	set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	flags := given(c, names)
	for _, name := range names { // in their order
		for _, v := range flags[name] {
			args = append(args, "--"+name+"="+v)
		}
	}
	return args
}

func (f *bisectFlags) valid(c *cobra.Command, path string) error {
	if f.check != "" {
		for _, set := range []*pflag.FlagSet{f.inputs, f.criteria} {
			if args := arguments(c, set); len(args) > 0 && f.extract == "" {
				return fmt.Errorf("%s cannot be combined with --check, which replaces the comparison", args[0])
			}
		}
	}
	if f.golden != "" && len(arguments(c, f.inputs)) > 0 {
		return fmt.Errorf("--golden sets the inputs: %s cannot be combined with it", arguments(c, f.inputs)[0])
	}
	if f.crash != crashFails && f.crash != crashUnknown {
		return fmt.Errorf("--crash %q: must be %s or %s", f.crash, crashFails, crashUnknown)
	}
	if f.cases < 1 || f.repeat < 1 || f.timeout < 0 {
		return errors.New("--cases and --repeat must be 1 or more, and --timeout must not be negative")
	}
	for _, out := range []string{f.out, f.passing, f.stateFile} {
		if out == "" {
			continue
		}
		if same(path, out) {
			return fmt.Errorf("%s is the input, which is never overwritten", out)
		}
		if err := writable(out); err != nil {
			return err
		}
	}
	if f.extract != "" {
		return errors.Join(f.backend.check(c), f.drawn.check(c), newFolder(f.extract))
	}
	return nil
}

func (f *bisectFlags) bisect(a *app, c *cobra.Command, path string) (err error) {
	if err := f.plan.read(c); err != nil {
		return err
	}
	if err := f.valid(c, path); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	b := &bisection{bisectFlags: f, app: a, ctx: ctx, command: c, path: path}
	if b.folder, err = atomicfile.MkdirTemp(f.work, "mojo-patch-bisect-*"); err != nil {
		return fmt.Errorf("cannot make a folder for temporary models: %w", err)
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(b.folder)) }()
	err = b.search()
	var by interrupt
	if errors.As(err, &by) {
		note := "use --state to keep the results of a stopped search"
		if f.stateFile != "" {
			note = "the same command continues from " + f.stateFile
		}
		return &exitError{signalCode(by.signal), fmt.Errorf("%w: %s", by, note)}
	}
	return err
}

// newFolder returns an error unless a folder can be created at path.
func newFolder(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already: choose a new folder", path)
	}
	if info, err := os.Stat(filepath.Dir(filepath.Clean(path))); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot make %s: %s is not a folder", path, filepath.Dir(filepath.Clean(path)))
	}
	return nil
}
