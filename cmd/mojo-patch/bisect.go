package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
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

	// flags of other commands, which run in children; these two run the model before it is patched
	match, run, inputs, criteria *pflag.FlagSet
	backend                      backend
	drawn                        inputFlags
}

func newBisect(a *app) *cobra.Command {
	f := &bisectFlags{}
	c := &cobra.Command{
		Use:   "bisect MODEL",
		Short: "Find the rewritten sites that make outputs leave the tolerance",
		Long: `bisect patches some of the sites of a model, compares, and halves the set of sites until it has the
smallest ones that the comparison fails with: one site, or several that fail together alone. It goes on
until what is left passes. The sites are those of a plan, or those that apply would replace; the flags
of match choose them.

It compares as diff does: outputs of the patched model with those of the original on the same inputs, or
with recorded ones (--golden); the flags of diff say how. --check runs a command of yours instead, in a
shell, with the path of the patched model in place of {} (or behind the command, and in
$MOJO_PATCH_MODEL): exit code 0 passes, 125 cannot tell, others fail. A check that is not the same each
time wants --repeat: one failure is enough.

Models are patched and run in children of this program. A crash of onnxruntime or of a kernel, or a
check that takes longer than --timeout, fails; with --crash unknown it tells nothing. --state keeps what
was found, after each check: the same command goes on where it was.

The weights are written once, to a temporary folder in --work; a patched model takes little room beside.
--extract writes the nodes of the smallest failing sites as a model, with the inputs and outputs that
they have in the whole model, and a plan that patches it: what a report of a fault needs.

It exits with 3 when all sites together pass.`,
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
	fl.StringVar(&f.passing, "passing", "", "write the plan of the sites that are left, which pass, to this file")
	fl.StringVar(&f.golden, "golden", "", "recorded cases: .npz, or a folder of ONNX test data")
	fl.StringVar(&f.check, "check", "", "command that tells whether a patched model is good, in place of the comparison")
	fl.StringVar(&f.stateFile, "state", "", "file that keeps the outcomes: where it is there, the search goes on")
	fl.StringVar(&f.extract, "extract", "", "new folder for the smallest failing part as a model with inputs and outputs")
	fl.StringVar(&f.work, "work", "", "folder for temporary models (default: the system's)")
	fl.StringVar(&f.crash, "crash", crashFails, "what a crash, or a check past --timeout, is: fail, unknown")
	fl.IntVar(&f.cases, "cases", 1, "number of random cases")
	fl.IntVar(&f.repeat, "repeat", 1, "run each check up to so many times; it passes if it does each time")
	fl.DurationVar(&f.timeout, "timeout", 0, "most time of a check, such as 90s (default: no limit)")
	f.others(c)
	f.plan.flags(c)
	completeFile(c, "output", "json")
	completeFile(c, "passing", "json")
	completeFile(c, "state", "json")
	completeFile(c, "golden", "npz")
	completeValues(c, "crash", func() []string { return []string{crashFails, crashUnknown} }, false)
	c.MarkFlagsMutuallyExclusive("check", "golden")
	a.jsonFlag(c)
	return c
}

// others takes the flags of match, run and diff that children get. Flags that they share are one.
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
	f.match = of((&planFlags{}).flags, "require", "allow-missing-weights")
	for _, set := range []*pflag.FlagSet{f.run, f.inputs, f.criteria, f.match} {
		c.Flags().AddFlagSet(set)
	}
}

// arguments writes those flags of a set that were given as a child takes them.
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
				return fmt.Errorf("%s is about the comparison, and --check takes its place", args[0])
			}
		}
	}
	if f.golden != "" && len(arguments(c, f.inputs)) > 0 {
		return fmt.Errorf("--golden has inputs of its own: %s cannot stand with it", arguments(c, f.inputs)[0])
	}
	if f.crash != crashFails && f.crash != crashUnknown {
		return fmt.Errorf("--crash %q: it is %s or %s", f.crash, crashFails, crashUnknown)
	}
	if f.cases < 1 || f.repeat < 1 || f.timeout < 0 {
		return errors.New("--cases and --repeat are 1 or more, and --timeout is a time")
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
		note := "--state keeps what was found until then"
		if f.stateFile != "" {
			note = "the same command goes on from " + f.stateFile
		}
		return &exitError{signalCode(by.signal), fmt.Errorf("%w: %s", by, note)}
	}
	return err
}

// bisection is one search in the sites of one model.
type bisection struct {
	*bisectFlags
	app     *app
	ctx     context.Context
	command *cobra.Command
	path    string // of the model
	folder  string // of temporary files
	base    string // the model there, with its weights beside it
	want    string // the cases to compare with
	sites   []string
	state   *bisectState
	checks  int
}

func (b *bisection) search() error {
	if err := b.begin(); err != nil {
		return err
	}
	s := &delta.Search{N: len(b.sites), Known: b.state.Outcomes, Test: b.test, Keep: b.save}
	culprits, rest, left, err := s.Culprits()
	switch {
	case errors.Is(err, delta.ErrEmpty):
		return failed(fmt.Errorf("%s does not pass before any site is replaced: the sites are not to blame", b.path))
	case errors.Is(err, delta.ErrUnknown):
		return failed(fmt.Errorf("no check can tell of all %s together", counted(len(b.sites), "site")))
	case errors.Is(err, delta.ErrFlaky):
		return failed(fmt.Errorf("%w (of %s; --repeat runs each check several times)", err, counted(len(b.sites), "site")))
	case err != nil:
		return err
	}
	return b.report(culprits, rest, left)
}

// begin finds the sites, and what to compare with.
func (b *bisection) begin() error {
	if err := b.loadState(); err != nil {
		return err
	}
	m, err := b.app.read(b.path)
	if err != nil {
		return err
	}
	defer m.Close()
	// Patched models in the same folder then need its data file and little more.
	b.base = filepath.Join(b.folder, "model.onnx")
	if err := onnx.Write(b.base, m, onnx.ExternalDataOver(1<<10)); err != nil {
		return err
	}
	if len(b.sites) == 0 {
		return &exitError{exitNothing, fmt.Errorf("%s: there is no site to replace", b.path)}
	}
	if b.check != "" {
		return nil
	}
	if b.want = b.golden; b.want == "" {
		return b.record(m)
	}
	return nil
}

// record runs the model as it was on the inputs.
func (b *bisection) record(m *onnx.Model) error {
	b.want = filepath.Join(b.folder, "want.npz")
	args := slices.Concat([]string{"golden", "record", b.base, "-o", b.want, "-q", fmt.Sprint("--cases=", b.cases)},
		arguments(b.command, b.run), arguments(b.command, b.inputs))
	r, err := b.app.itself(b.ctx, b.timeout, args...)
	if err != nil {
		return err
	}
	if r.ended != "" || r.code != exitDone {
		return fmt.Errorf("%s cannot be run: %w", b.path, r.failure())
	}
	cases, err := golden.Load(b.want, m)
	if err != nil {
		return err
	}
	if err := inHalf(m, cases); err != nil { // as diff compares
		return err
	}
	return golden.SaveNPZ(b.want, cases)
}

// findPlan has match find the sites, in a child: a kernel that is tried may crash.
func (b *bisection) findPlan() (*rewrite.PlanFile, error) {
	path := filepath.Join(b.folder, "found.json")
	args := slices.Concat([]string{"match", b.path, "-o", path, "-q"}, arguments(b.command, b.match))
	r, err := b.app.itself(b.ctx, 0, args...)
	if err != nil {
		return nil, err
	}
	if r.ended != "" {
		return nil, failed(fmt.Errorf("the check of the sites %s\n(--check-kernels off leaves the kernels out)", r.ended))
	}
	if r.code != exitDone {
		return nil, r.failure()
	}
	return rewrite.ReadPlan(path)
}

// test patches a set of sites and checks the model.
func (b *bisection) test(set []int) (delta.Outcome, error) {
	b.checks++
	start := time.Now()
	outcome, why, err := b.tryPlan(b.state.Plan.With(b.ids(set)...))
	if err != nil {
		return "", err
	}
	if why != "" {
		why = ": " + why
	}
	b.app.say("check %d, %d of %s (%s): %s%s, %.1f s", b.checks, len(set), counted(len(b.sites), "site"),
		delta.Key(set), outcome, why, time.Since(start).Seconds())
	return outcome, nil
}

func (b *bisection) tryPlan(p *rewrite.PlanFile) (delta.Outcome, string, error) {
	plan, model := filepath.Join(b.folder, "plan.json"), filepath.Join(b.folder, "patched.onnx")
	if why, err := b.app.patchPlanned(b.ctx, b.base, p, plan, model, b.libraries()); err != nil || why != "" {
		return delta.Unknown, why, err
	}
	outcome, why := delta.Passes, ""
	for range b.repeat {
		o, w, err := b.checkModel(model)
		if err != nil {
			return "", "", err
		}
		if o != delta.Passes {
			outcome, why = o, w
		}
		if o == delta.Fails {
			break
		}
	}
	return outcome, why, nil
}

// libraries are the flags that say where libraries lie.
func (b *bisection) libraries() []string {
	return slices.DeleteFunc(arguments(b.command, b.match), func(s string) bool {
		return !strings.HasPrefix(s, "--kernels-lib=") && !strings.HasPrefix(s, "--onnxruntime=")
	})
}

// patchPlanned applies a plan to a model that it was not made for, without checks: those were when it was made. why says
// what is wrong with it; an error is one of the system.
func (a *app) patchPlanned(ctx context.Context, model string, p *rewrite.PlanFile, plan, out string, libraries []string) (
	why string, err error) {
	if err := rewrite.WritePlan(plan, p); err != nil {
		return "", err
	}
	args := slices.Concat([]string{"apply", model, "-o", out, "-q", "--plan", plan, "--force", "--verify=off",
		"--check-kernels=off"}, libraries)
	if p.Flags["target"] != nil { // which has no kernels
		args = slices.DeleteFunc(args, func(s string) bool { return s == "--check-kernels=off" })
	}
	r, err := a.itself(ctx, 0, args...)
	switch {
	case err != nil:
		return "", err
	case r.code == exitDone:
		return "", nil
	case r.code == exitEnvironment:
		return "", r.failure()
	}
	return firstLine(r.failure()), nil
}

// newFolder errs unless a folder can be made at path.
func newFolder(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already: name a new folder", path)
	}
	if info, err := os.Stat(filepath.Dir(filepath.Clean(path))); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot make %s: %s is no folder", path, filepath.Dir(filepath.Clean(path)))
	}
	return nil
}
