package bisect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// bisection is a search among the sites of one model.
type bisection struct {
	*options
	app     *cli.App
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
		return cli.Failed(fmt.Errorf("%s fails before any site is replaced: the sites are not the cause", b.path))
	case errors.Is(err, delta.ErrUnknown):
		return cli.Failed(fmt.Errorf("no check gave a result for all %s together", cli.Counted(len(b.sites), "site")))
	case errors.Is(err, delta.ErrFlaky):
		return cli.Failed(fmt.Errorf("%w (of %s; use --repeat to run each check several times)", err,
			cli.Counted(len(b.sites), "site")))
	case err != nil:
		return err
	}
	return b.report(culprits, rest, left)
}

// begin finds the sites, and the outputs to compare with.
func (b *bisection) begin() error {
	if err := b.loadState(); err != nil {
		return err
	}
	m, err := b.app.Read(b.path)
	if err != nil {
		return err
	}
	defer m.Close()
	// Patched models in the same folder then share its data file and take little space.
	b.base = filepath.Join(b.folder, "model.onnx")
	if err := onnx.Write(b.base, m, onnx.ExternalDataOver(1<<10)); err != nil {
		return err
	}
	if len(b.sites) == 0 {
		return cli.ExitWith(cli.ExitNothing, fmt.Errorf("%s has no site to replace", b.path))
	}
	if b.check != "" {
		return nil
	}
	if b.want = b.golden; b.want == "" {
		return b.record(m)
	}
	return nil
}

// record runs the original model on the inputs.
func (b *bisection) record(m *onnx.Model) error {
	b.want = filepath.Join(b.folder, "want.npz")
	args := slices.Concat([]string{"golden", "record", b.path, "-o", b.want, "-q", fmt.Sprint("--cases=", b.cases)},
		arguments(b.command, b.run), arguments(b.command, b.inputs))
	r, err := itself(b.ctx, b.app, b.timeout, args...)
	if err != nil {
		return err
	}
	if r.Ended != "" || r.Code != cli.ExitDone {
		return fmt.Errorf("cannot run %s: %w", b.path, failure(r))
	}
	cases, err := golden.Load(b.want, m)
	if err != nil {
		return err
	}
	if err := feeds.InHalf(m, cases); err != nil { // as diff does
		return err
	}
	return golden.SaveNPZ(b.want, cases)
}

// findPlan runs match in a child process, since a kernel that is tried may crash.
func (b *bisection) findPlan() (*rewrite.PlanFile, error) {
	path := filepath.Join(b.folder, "found.json")
	args := slices.Concat([]string{"match", b.path, "-o", path, "-q"}, arguments(b.command, b.match))
	r, err := itself(b.ctx, b.app, 0, args...)
	if err != nil {
		return nil, err
	}
	if r.Ended != "" {
		return nil, cli.Failed(fmt.Errorf("the check of the sites %s\n(use --check-kernels off to check without the "+
			"kernels)",
			r.Ended))
	}
	if r.Code != cli.ExitDone {
		return nil, failure(r)
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
	b.app.Say("check %d, %d of %s (%s): %s%s, %.1f s", b.checks, len(set), cli.Counted(len(b.sites), "site"),
		delta.Key(set), outcome, why, time.Since(start).Seconds())
	return outcome, nil
}

func (b *bisection) tryPlan(p *rewrite.PlanFile) (delta.Outcome, string, error) {
	plan, model := filepath.Join(b.folder, "plan.json"), filepath.Join(b.folder, "patched.onnx")
	if why, err := patchPlanned(b.ctx, b.app, b.base, p, plan, model, b.libraries()); err != nil || why != "" {
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

// libraries returns the flags that name library paths.
func (b *bisection) libraries() []string {
	return slices.DeleteFunc(arguments(b.command, b.match), func(s string) bool {
		return !strings.HasPrefix(s, "--kernels-lib=") && !strings.HasPrefix(s, "--onnxruntime=")
	})
}

// patchPlanned writes a plan to a file and applies it to a model that it was not made for. It skips the checks, which
// ran when the plan was made. why is the reason if patching fails; err is an error of the system.
func patchPlanned(ctx context.Context, a *cli.App, model string, p *rewrite.PlanFile, plan, out string,
	libraries []string) (why string, err error) {
	if err := rewrite.WritePlan(plan, p); err != nil {
		return "", err
	}
	args := slices.Concat([]string{"apply", model, "-o", out, "-q", "--plan", plan, "--force", "--verify=off",
		"--check-kernels=off"}, libraries)
	if p.Flags["target"] != nil { // targets have no kernels
		args = slices.DeleteFunc(args, func(s string) bool { return s == "--check-kernels=off" })
	}
	r, err := itself(ctx, a, 0, args...)
	switch {
	case err != nil:
		return "", err
	case r.Code == cli.ExitDone:
		return "", nil
	case r.Code == cli.ExitEnvironment:
		return "", failure(r)
	}
	return cli.FirstLine(failure(r)), nil
}
