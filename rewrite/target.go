package rewrite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// chooseTarget returns the kernels of a target: its device's kernels, or else the target itself, and standard ops.
func chooseTarget(t *target.Target) ([]*registry.Kernel, []registry.KernelReport) {
	var chosen []*registry.Kernel
	if t.Device == "" { // all fused ops, so that unsupported ones are reported
		chosen = append(chosen, &registry.Kernel{ID: t.Name, Device: registry.DeviceAny, Summary: t.Summary,
			Ops: registry.EveryOp()})
	}
	for _, k := range registry.ScanAllKernels() {
		if k.Device == registry.DeviceAny || strings.EqualFold(k.Device, t.Device) {
			chosen = append(chosen, k)
		}
	}
	var reports []registry.KernelReport
	for _, k := range chosen {
		reports = append(reports, k.Selected())
	}
	return chosen, reports
}

// lower replaces the fused ops of a candidate by the target's ops, unless they wait for the caches.
func (p *Plan) lower(c *candidate) (err error) {
	if t := p.request.Target; t != nil && !p.waits(c) {
		c.emits, err = c.Lower(t, &target.Products{AccuracyLevel: p.request.AccuracyLevel}, p.run.Facts)
	}
	return err
}

// CheckFused reports for each target which fused ops of a patched model it takes; the others are Open. It returns an
// error for a target without kernels for fused ops.
func CheckFused(m *onnx.Model, targets ...*target.Target) ([][]SiteReport, error) {
	for _, t := range targets {
		if t == nil || t.Device == "" {
			return nil, errors.New("only targets with kernels for fused ops take patched models")
		}
	}
	facts := infer.Analyze(m)
	sites := make([][]SiteReport, len(targets))
	for _, scope := range pass.Scopes(m, func(f *onnx.Function) bool { return f.Domain == fused.Domain }) {
		for _, n := range scope.Graph.Nodes {
			if n.Domain != fused.Domain || fused.Lookup(n.OpType) == nil {
				continue
			}
			site := SiteReport{ID: pass.SiteID(n.OpType, scope.Place, n.Outputs), Pattern: n.OpType, Op: n.OpType,
				Nodes: []string{n.Label()}, Node: n.Label(), Status: Fused}
			s := pass.FusedSite(m, facts, n)
			for _, t := range s.Types {
				site.Types = append(site.Types, t.String())
			}
			for i, t := range targets {
				on := site
				if emits, err := t.Write(target.NewCall(n, s)); err != nil {
					on.explain(reason.New(reason.Target, n, "%w", err).With("target", t.Name))
				} else {
					on.Emits = []string{emits}
				}
				sites[i] = append(sites[i], on)
			}
		}
	}
	return sites, nil
}

// checkRouter checks the router separately, on all kinds of logits, if a target combines it with its experts: the check
// of both only uses routings with known experts.
func (p *Plan) checkRouter(s *pass.Scope, m *patterns.Match, check *sites.Checker) error {
	for _, part := range m.Parts {
		if p.request.Target == nil || part.Op != fused.TopKRouterName {
			continue
		}
		c, err := p.candidate(s, part)
		if err == nil {
			_, err = check.Check(c.Site)
		}
		if err != nil {
			return fmt.Errorf("the router: %w", err)
		}
	}
	return nil
}

// findForeign counts the nodes that are neither standard ops nor defined in the model, for a target of standard
// runtimes. It drops the import of onnxruntime's domain if no node uses it.
func (p *Plan) findForeign() error {
	if t := p.request.Target; t == nil || !t.Standard {
		return nil
	}
	m := p.run.Model
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if m.Function(n.Domain, n.OpType, n.Overload) != nil ||
				onnx.IsStandardDomain(n.Domain) && convert.Since(n.OpType) > 0 {
				continue
			}
			if p.Report.Foreign == nil {
				p.Report.Foreign = map[string]int{}
			}
			p.Report.Foreign[onnx.OpName(n.Domain, n.OpType)]++
		}
	}
	new(edit.Change).DropImport(m, onnx.Microsoft)
	return nil
}

// foreignText lists the ops that only some runtimes have.
func (r *Report) foreignText() string {
	if len(r.Foreign) == 0 {
		return ""
	}
	var list []string
	count := 0
	for _, op := range slices.Sorted(maps.Keys(r.Foreign)) {
		list = append(list, fmt.Sprintf("%d %s", r.Foreign[op], op))
		count += r.Foreign[op]
	}
	return fmt.Sprintf("%-18s %s not in the standard, so only runtimes with these ops run the model: %s\n",
		"not portable", english.Counted(count, "node"), strings.Join(list, ", "))
}
