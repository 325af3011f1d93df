package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite/cut"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// extractedPlan is the plan's file in a folder that bisect --extract writes.
const extractedPlan = "plan.json"

// extractSites writes the nodes of some sites as a model, with recorded cases and the plan that patches it, and runs
// the comparison on that model. The plans and the folder appear together.
func (b *bisection) extractSites(r *bisectReport, set []int, plans outputs) error {
	m, err := b.app.read(b.path)
	if err != nil {
		return err
	}
	defer m.Close()
	var cases []golden.Case
	if b.want != "" {
		cases, err = recorded(b.want, m)
	} else {
		cases, err = b.drawn.cases(m, b.cases)
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
	r.Extracted, err = b.app.writeCut(&b.backend, cut, cases, b.extract, func(folder string) (err error) {
		if files := plan.Flags["patterns"]; len(files) > 0 {
			plan.Flags = maps.Clone(plan.Flags)
			if plan.Flags["patterns"], err = copyPatterns(files, folder); err != nil {
				return err
			}
		}
		r.Alone, err = b.alone(folder, plan)
		return err
	}, plans...)
	if err != nil {
		return err
	}
	b.app.say("alone: %s; to see it:\n  mojo-patch apply %[2]s/%[3]s --plan %[2]s/%[4]s -o patched.onnx\n"+
		"  mojo-patch diff patched.onnx --golden %[2]s/%[5]s", r.Alone, b.extract, extractedModel, extractedPlan,
		extractedGolden)
	return nil
}

// cut finds the sites again with the plan's flags, and cuts them out.
func (b *bisection) cut(m *onnx.Model, ids []string) (*cut.Part, error) {
	f, c := &planFlags{}, &cobra.Command{}
	f.flags(c)
	for name, values := range b.state.Plan.Flags {
		for _, v := range values {
			if err := c.Flags().Set(name, v); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	f.verify, f.checkKernels, f.assume = string(rewrite.VerifyOff), kernelsOff, true
	p, err := f.plan(b.app)
	if err != nil {
		return nil, err
	}
	defer p.end()
	plan, err := p.Plan(m)
	if err != nil {
		return nil, err
	}
	return cutSites(cut.New(m), plan.Report.Sites, ids)
}

// alone adapts the plan to the model in the folder, patches that model and compares it.
func (b *bisection) alone(folder string, plan *rewrite.PlanFile) (delta.Outcome, error) {
	model := filepath.Join(folder, extractedModel)
	part, err := b.app.read(model)
	if err != nil {
		return "", err
	}
	defer part.Close()
	plan.Model = rewrite.DescribeModel(part, extractedModel)
	if plan.Model.SHA256, err = onnx.SHA256(model); err != nil {
		return "", err
	}
	patched := filepath.Join(b.folder, "part.onnx")
	why, err := b.app.patchPlanned(b.ctx, model, plan, filepath.Join(folder, extractedPlan), patched, b.libraries())
	if err != nil {
		return "", err
	}
	if why != "" {
		b.app.say("the part cannot be patched by itself: %s", why)
		return delta.Unknown, nil
	}
	// Criteria for single outputs and for logits apply only to the whole model.
	criteria := slices.DeleteFunc(arguments(b.command, b.criteria), func(s string) bool {
		return strings.Contains(s, ":") || !strings.HasPrefix(s, "--atol=") && !strings.HasPrefix(s, "--rtol=")
	})
	outcome, _, err := b.compare(patched, filepath.Join(folder, extractedGolden), criteria)
	return outcome, err
}
