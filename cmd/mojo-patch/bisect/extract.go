package bisect

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/parts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/cut"
	"github.com/spf13/cobra"
)

// extractedPlan is the plan's file in a folder that bisect --extract writes.
const extractedPlan = "plan.json"

// extractSites writes the nodes of some sites as a model, with recorded cases and the plan that patches it, and runs
// the comparison on that model. The plans and the folder appear together.
func (b *bisection) extractSites(r *Report, set []int, plans cli.Outputs) error {
	m, err := b.app.Read(b.path)
	if err != nil {
		return err
	}
	defer m.Close()
	var cases []golden.Case
	if b.want != "" {
		cases, err = feeds.Recorded(b.want, m)
	} else {
		cases, err = b.drawn.Cases(m, b.cases)
	}
	if err != nil {
		return err
	}
	cut, err := b.cut(m, b.ids(set))
	if err != nil {
		return err
	}
	plan := b.state.Plan.With(b.ids(set)...)
	plan.Sites = b.planned(set)
	r.Extracted, err = parts.WriteCut(b.app, &b.backend, cut, cases, b.extract, func(folder string) (err error) {
		if files := plan.Flags["patterns"]; len(files) > 0 {
			plan.Flags = maps.Clone(plan.Flags)
			if plan.Flags["patterns"], err = parts.CopyPatterns(files, folder); err != nil {
				return err
			}
		}
		r.Alone, err = b.alone(folder, plan)
		return err
	}, plans...)
	if err != nil {
		return err
	}
	b.app.Say("alone: %s; to see it:\n  mojo-patch apply %[2]s/%[3]s --plan %[2]s/%[4]s -o patched.onnx\n"+
		"  mojo-patch diff patched.onnx --golden %[2]s/%[5]s", r.Alone, b.extract, parts.ModelFile, extractedPlan,
		parts.GoldenFile)
	return nil
}

// cut finds the sites again with the plan's flags, and cuts them out.
func (b *bisection) cut(m *onnx.Model, ids []string) (*cut.Part, error) {
	f, c := &planning.PlanFlags{}, &cobra.Command{}
	f.AddTo(c)
	for name, values := range b.state.Plan.Flags {
		for _, v := range values {
			if err := c.Flags().Set(name, v); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	f.Verify, f.CheckKernels, f.Assume = string(rewrite.VerifyOff), session.KernelsOff, true
	p, err := f.Begin(b.app)
	if err != nil {
		return nil, err
	}
	defer p.End()
	plan, err := p.Plan(m)
	if err != nil {
		return nil, err
	}
	return parts.CutSites(cut.New(m), plan.Report.Sites, ids)
}

// alone adapts the plan to the model in the folder, patches that model and compares it.
func (b *bisection) alone(folder string, plan *rewrite.PlanFile) (delta.Outcome, error) {
	model := filepath.Join(folder, parts.ModelFile)
	part, err := b.app.Read(model)
	if err != nil {
		return "", err
	}
	defer part.Close()
	plan.Model = rewrite.DescribeModel(part, parts.ModelFile)
	if plan.Model.SHA256, err = onnx.SHA256(model); err != nil {
		return "", err
	}
	patched := filepath.Join(b.folder, "part.onnx")
	why, err := patchPlanned(b.ctx, b.app, model, plan, filepath.Join(folder, extractedPlan), patched, b.libraries())
	if err != nil {
		return "", err
	}
	if why != "" {
		b.app.Say("the part cannot be patched by itself: %s", why)
		return delta.Unknown, nil
	}
	// Criteria for single outputs and for logits apply only to the whole model.
	criteria := slices.DeleteFunc(arguments(b.command, b.criteria), func(s string) bool {
		return strings.Contains(s, ":") || !strings.HasPrefix(s, "--atol=") && !strings.HasPrefix(s, "--rtol=")
	})
	outcome, _, err := b.compare(patched, filepath.Join(folder, parts.GoldenFile), criteria)
	return outcome, err
}
