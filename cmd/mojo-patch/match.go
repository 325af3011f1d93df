package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

func newMatch(a *app) *cobra.Command {
	f := &planFlags{}
	out := ""
	c := &cobra.Command{
		Use:   "match MODEL",
		Short: "Show for each site what apply would do, without writing a model",
		Long: `match finds and checks the blocks as apply does, and prints the result for each: the pattern and the
fused op, the site's last node, the kernel and its device, and the reason if the site would stay
unchanged. It does not write a model. It has the same flags and the same report as apply --dry-run. -v
also lists the near misses.

-o writes a plan: JSON with every site, its nodes, its check, its kernel, and whether to apply it. Edit
the plan and run apply --plan: a site with "apply": false, or whose entry was removed, stays
unchanged. The plan holds the SHA-256 of the model file, and the versions of tool and patterns.`,
		Example: `  mojo-patch match model.onnx
  mojo-patch match model.onnx --only RMSNorm,AddRMSNorm --verify all
  mojo-patch match model.onnx --json | jq '.sites[] | select(.status == "refused")'
  mojo-patch match model.onnx -o plan.json`,
		Args:              modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.preset.expand(a, c, args[0], changedFlags(c), true); err != nil {
				return err
			}
			if out == "" {
				if c.Flags().Changed("output") {
					return errors.New("the path after -o is empty")
				}
				return f.match(a, c, args[0], nil)
			}
			if same(args[0], out) {
				return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", out)
			}
			if err := writable(out); err != nil {
				return err
			}
			return f.match(a, c, args[0], func(p *rewrite.PlanFile) (*atomicfile.Prepared, error) {
				return savePlan(c, &f.preset, out, args[0], p)
			})
		},
	}
	f.flags(c)
	c.Flags().StringVarP(&out, "output", "o", "", "write a plan to this file, for apply --plan")
	completeFile(c, "output", "json")
	headings(c, "output for target dtype backend html only require json", "Decoders: last-logits",
		"Targets: shape accuracy-level runs-on", safeHeading, "Sites: skip node site include patterns inline",
		"Checks: verify check-kernels", "Trouble: assume-available allow-missing-weights", pathsHeading)
	a.jsonFlag(c, "report")
	return c
}

// match plans and reports, for match and for apply --dry-run. If keep is not nil, it writes the plan to a temporary
// file.
func (f *planFlags) match(a *app, c *cobra.Command, path string,
	keep func(*rewrite.PlanFile) (*atomicfile.Prepared, error)) error {
	if f.html != "" && same(path, f.html) {
		return fmt.Errorf("--html %s is the model: choose another file", f.html)
	}
	var found *rewrite.Plan
	p, m, r, err := f.find(a, c, path, func(p *plan, m *onnx.Model) (*rewrite.Report, error) {
		var err error
		if found, err = p.Plan(m); err != nil {
			return nil, err
		}
		p.draw(found)
		return found.Report, nil
	})
	if err != nil {
		return err
	}
	defer p.end()
	defer m.Close()
	var files outputs
	defer files.close()
	if keep != nil {
		if err := files.add(keep(found.PlanFile())); err != nil {
			return err
		}
	}
	if err := files.add(f.learn.prepare(r.Learnt)); err != nil {
		return err
	}
	r.PeakRSSBytes = peakRSS()
	if err := a.result(reported(r)); err != nil {
		return err
	}
	writeSites(a.human(), r, a.verbose)
	if err := r.WriteCounts(a.human(), a.verbose); err != nil {
		return err
	}
	if n := r.Missed(); n > 0 && !a.verbose {
		a.say("%s (use -v to list where and why)", near(n))
	}
	if err := files.add(p.previewPage(m, found)); err != nil {
		return errors.Join(p.enough(r), err)
	}
	if err := atomicfile.Commit(files.rename); err != nil {
		return errors.Join(p.enough(r), err)
	}
	f.learn.say(a, r.Learnt)
	p.sayPage()
	return p.enough(r)
}

func near(n int) string {
	if n == 1 {
		return "1 near miss"
	}
	return fmt.Sprintf("%d near misses", n)
}

// writeSites lists the sites with their status, and near misses if requested.
func writeSites(w io.Writer, r *rewrite.Report, misses bool) {
	t := newTable("pattern", "op", "node", "kernel", "device", "status", "reason")
	n := 0
	for _, s := range r.Sites {
		if s.Status == rewrite.Missed && !misses {
			continue
		}
		kernel := s.Kernel
		if len(s.Emits) > 0 {
			kernel += ": " + strings.Join(s.Emits, ", ")
		}
		t.add(s.Pattern, s.Op, s.Node, kernel, s.Device, s.Status, s.Reason)
		n++
	}
	if n > 0 {
		t.write(w)
	}
}
