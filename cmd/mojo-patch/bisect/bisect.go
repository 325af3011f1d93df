// Package bisect is the command bisect.
package bisect

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The values of --crash.
const (
	crashFails   = "fail"
	crashUnknown = "unknown"
)

type options struct {
	plan      planning.PlanFileFlags
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
	backend                      session.Backend
	drawn                        feeds.InputFlags
}

// New returns the command bisect.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "bisect MODEL",
		Short: "Find the rewritten sites that put outputs out of tolerance",
		Long: `bisect patches some of the sites of a model, compares, and halves the set of sites until it has the
smallest sets with which the comparison fails: one site, or several that fail only together. It
continues until the other sites pass. The sites come from a plan, or are the sites that apply would
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
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
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
	f.plan.AddTo(c)
	cli.CompleteFile(c, "output", "json")
	cli.CompleteFile(c, "passing", "json")
	cli.CompleteFile(c, "state", "json")
	cli.CompleteFile(c, "golden", "npz")
	cli.CompleteValues(c, "crash", func() []string { return []string{crashFails, crashUnknown} }, false)
	cli.Rules(c, "check excludes golden: --check replaces the comparison",
		"golden excludes inputs seed dim: --golden sets the inputs")
	cli.Headings(c, "output golden check plan state extract provider json",
		"Search: passing cases repeat timeout crash work force", cli.InputsHeading, cli.BoundsHeading,
		"Patching: target shape accuracy-level runs-on dtype last-logits html", cli.SafeHeading,
		"Sites: only skip node site include patterns inline verify check-kernels assume-available",
		"Runtime: backend provider-option provider-library provider-device provider-only kernels optimize "+
			"threads products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "bisect")
	return c
}

// others adds the flags of match, run and diff that child processes get. A flag that several of them have is added
// once.
func (f *options) others(c *cobra.Command) {
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
	f.run = of(f.backend.AddTo)
	f.inputs = of(f.drawn.AddTo)
	f.criteria = of((&compare.Criteria{}).AddTo)
	f.match = of((&planning.PlanFlags{}).AddTo, "require", "allow-missing-weights", "for")
	for _, set := range []*pflag.FlagSet{f.run, f.inputs, f.criteria, f.match} {
		c.Flags().AddFlagSet(set)
	}
}

// arguments returns those flags of a set that were given, in the form of command-line arguments.
func arguments(c *cobra.Command, set *pflag.FlagSet) []string {
	var names, args []string
	set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	flags := planning.Given(c, names)
	for _, name := range names { // in their order
		for _, v := range flags[name] {
			args = append(args, "--"+name+"="+v)
		}
	}
	return args
}

func (f *options) valid(c *cobra.Command, path string) error {
	if f.check != "" {
		for _, set := range []*pflag.FlagSet{f.inputs, f.criteria} {
			if args := arguments(c, set); len(args) > 0 && f.extract == "" {
				return fmt.Errorf("%s cannot be combined with --check, which replaces the comparison", args[0])
			}
		}
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
		if cli.Same(path, out) {
			return fmt.Errorf("%s is the input, which is never overwritten", out)
		}
		if err := cli.Writable(out); err != nil {
			return err
		}
	}
	if f.extract != "" {
		return errors.Join(f.backend.Check(c), f.drawn.Check(c), cli.NewFolder(f.extract))
	}
	return nil
}

func (f *options) bisect(a *cli.App, c *cobra.Command, path string) (err error) {
	if err := f.plan.Read(c); err != nil {
		return err
	}
	if err := cli.CheckRules(c); err != nil {
		return err
	}
	if err := f.valid(c, path); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible()
	defer stop()
	b := &bisection{options: f, app: a, ctx: ctx, command: c, path: path}
	if b.folder, err = atomicfile.MkdirTemp(f.work, "mojo-patch-bisect-*"); err != nil {
		return fmt.Errorf("cannot make a folder for temporary models: %w", err)
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(b.folder)) }()
	err = b.search()
	var by cli.Interrupt
	if errors.As(err, &by) {
		note := "use --state to keep the results of a stopped search"
		if f.stateFile != "" {
			note = "the same command continues from " + f.stateFile
		}
		return cli.ExitWith(cli.SignalCode(by.Signal), fmt.Errorf("%w: %s", by, note))
	}
	return err
}
