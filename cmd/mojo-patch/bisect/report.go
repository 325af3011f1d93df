package bisect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/parts"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// Report is the result of bisect under --json.
type Report struct {
	Schema int    `json:"schema"`
	Model  string `json:"model"`
	Sites  int    `json:"sites"`  // the number of sites searched
	Checks int    `json:"checks"` // the number of checks run, without outcomes that were already known
	// Culprits are sets of sites that fail without the other sites, the smallest set first. No set fails without one of
	// its sites.
	Culprits [][]rewrite.PlannedSite `json:"culprits"`
	// Left is the outcome of all other sites together: passes, or unknown if a crash is inconclusive.
	Left    delta.Outcome `json:"left"`
	Failing string        `json:"failing,omitempty"` // the plan of the first culprits
	Passing string        `json:"passing,omitempty"` // the plan of the other sites
	// Extracted describes the first culprits as a model. Alone is the outcome of the comparison on that model.
	Extracted *parts.Extracted `json:"extracted,omitempty"`
	Alone     delta.Outcome    `json:"alone,omitempty"`
}

func (b *bisection) report(culprits [][]int, rest []int, left delta.Outcome) error {
	slices.SortStableFunc(culprits, func(x, y []int) int { return len(x) - len(y) })
	r := &Report{Schema: cli.JSONSchema, Model: b.path, Sites: len(b.sites), Checks: b.checks, Left: left,
		Culprits: [][]rewrite.PlannedSite{}}
	for _, set := range culprits {
		r.Culprits = append(r.Culprits, b.planned(set))
	}
	for i, set := range r.Culprits {
		together := ""
		if len(set) > 1 {
			together = fmt.Sprintf(" %d, which fail only together", len(set))
		}
		b.app.Say("culprit %d of %d%s", i+1, len(r.Culprits), together+":")
		for _, s := range set {
			b.app.Say("  %s (%s, %s) at %s", s.ID, s.Op, s.Kernel, s.Node)
		}
	}
	if len(culprits) > 0 {
		if err := b.writeCulprit(r, culprits[0], rest, left); err != nil {
			return err
		}
	}
	if err := b.app.Result(r); err != nil {
		return err
	}
	if len(culprits) == 0 {
		return cli.ExitWith(cli.ExitNothing, fmt.Errorf("%s passes with all %s replaced: bisect found no culprit",
			b.path,
			cli.Counted(len(b.sites), "site")))
	}
	return nil
}

// writeCulprit writes the requested plans and folder, which appear together. If the folder cannot be made, the plans
// are kept; an interrupt keeps nothing.
func (b *bisection) writeCulprit(r *Report, failing, rest []int, left delta.Outcome) error {
	plans, err := b.preparePlans(r, failing, rest)
	defer plans.Discard()
	if err != nil {
		return err
	}
	if b.extract != "" {
		err = b.extractSites(r, failing, plans)
		var by cli.Interrupt
		if errors.As(err, &by) {
			return err
		}
	}
	if b.extract == "" || err != nil {
		if err := atomicfile.Commit(plans.Rename); err != nil {
			return err
		}
	}
	for _, w := range [][2]string{{r.Failing, "the smallest sites that fail"}, {r.Passing, "the other sites"}} {
		if w[0] != "" {
			b.app.Say("wrote %s: the plan of %s", w[0], w[1])
		}
	}
	if len(rest) > 0 {
		b.app.Say("the other %s together: %s", cli.Counted(len(rest), "site"), left)
	}
	if err != nil {
		return fmt.Errorf("--extract: %w", err)
	}
	return nil
}

// planned returns the plan's entries for a set of sites.
func (b *bisection) planned(set []int) []rewrite.PlannedSite {
	var list []rewrite.PlannedSite
	for _, s := range b.state.Plan.With(b.ids(set)...).Sites {
		if s.Apply {
			list = append(list, s)
		}
	}
	return list
}

func (b *bisection) ids(set []int) []string {
	var ids []string
	for _, i := range set {
		ids = append(ids, b.sites[i])
	}
	return ids
}

// preparePlans writes the requested plans to temporary files.
func (b *bisection) preparePlans(r *Report, failing, passing []int) (files cli.Outputs, err error) {
	for _, w := range []struct {
		path string
		set  []int
		note *string
	}{{b.out, failing, &r.Failing}, {b.passing, passing, &r.Passing}} {
		if w.path == "" {
			continue
		}
		file, err := atomicfile.Prepare(w.path, b.state.Plan.With(b.ids(w.set)...).Write)
		if err := files.Add(file, err); err != nil {
			return files, fmt.Errorf("cannot write the plan: %w", err)
		}
		*w.note = w.path
	}
	return files, nil
}
