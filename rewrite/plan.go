package rewrite

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// Plan holds the changes that a Patcher would make to a model. Its sites are found and checked, but not replaced. The
// model was prepared for the search, and must not be changed before Replace.
type Plan struct {
	// Report has the status of each site. Until Replace it is the report of a dry run.
	Report *Report
	// Found holds the matches and near misses of each graph.
	Found []*Found

	request     *Request
	run         *pass.Run
	kernels     *registry.Selection
	definitions *definitions
	floats      *quantized.View // of the weights that other tools quantized
	asked       map[string]bool // the requested site ids that no site had yet
	merged      string          // the If of a merged decoder that was replaced by its branch with a past
	accepted    []*candidate
	// restore undoes inlining and the raised opset; nil if there is nothing to undo.
	restore func() error
}

// Found holds the matches and near misses of one graph, before they are judged.
type Found struct {
	Graph   *onnx.Graph
	Matches []*patterns.Match
	Misses  []*patterns.Miss

	scope *pass.Scope
}

// Plan prepares the model, and finds and checks its sites. If it returns an error, the model must not be used.
func (p *Patcher) Plan(m *onnx.Model) (*Plan, error) {
	if err := pass.CheckDomain(m); err != nil {
		return nil, err
	}
	r := p.begin
	r.Patterns, r.Sites, r.Kernels, r.DryRun = []PatternReport{}, []SiteReport{}, p.Kernels(), true
	r.Input, r.Rounded, r.RoundedByRuntime = DescribeModel(m, m.Path), quantized.CountRounded(m),
		quantized.RoundedByRuntime(m)
	r.opsBefore = countOps(m)
	for _, name := range p.request.names {
		r.pattern(name)
	}
	plan := &Plan{Report: &r, request: p.request, run: p.request.run(m, p.kernels.HasKernel), kernels: p.kernels,
		definitions: newDefinitions(m), asked: maps.Clone(p.request.ids)}
	plan.floats = quantized.NewView(plan.run, p.request.OwnProducts)
	start := time.Now()
	if err := plan.inOrder(preparing); err != nil {
		return nil, err
	}
	r.TimeMS.Prepare = lap(&start)
	if !p.kernels.IsEmpty() {
		plain := edit.Change{Undoable: true}
		plain.PlainInitializers(m)
		if err := plan.floats.Begin(); err != nil {
			return nil, err
		}
		if err := plan.inline(); err != nil {
			return nil, err
		}
		if plan.find(); plan.raiseForSites() {
			plan.run.Facts = infer.Analyze(m)
			plan.find()
		}
		plan.check()
		if p.request.Learn {
			if err := plan.learn(); err != nil {
				return nil, err
			}
		}
		if err := plain.Undo(); err != nil {
			return nil, err
		}
	}
	if p.request.Plan != nil {
		return plan, plan.asPlanned()
	}
	if len(plan.asked) > 0 {
		return nil, fmt.Errorf("no site with the id %q, or no selected kernel supports it",
			slices.Sorted(maps.Keys(plan.asked)))
	}
	return plan, nil
}

// find looks for matches in all graphs except the bodies of the ops that patterns rewrite to.
func (p *Plan) find() {
	start := time.Now()
	p.Found = nil
	for _, s := range p.run.Scopes() {
		f := &Found{Graph: s.Graph, scope: s}
		f.Matches, f.Misses = p.request.find(s.Graph, p.run.Facts)
		p.Found = append(p.Found, f)
	}
	p.Report.TimeMS.Match += lap(&start)
}

func (p *Plan) check() {
	start := time.Now()
	check := sites.NewChecker(p.run)
	check.Target, check.Runtime, check.Drawn = p.request.Target, p.request.Runtime, p.request.DrawMissing
	check.RoutedOnly = p.request.Verify == VerifyRouted
	within := map[*onnx.Graph]bool{} // in nodes that are replaced as a whole
	done, total := 0, 0
	check.Outputs = map[*onnx.Value]bool{}
	for _, f := range p.Found {
		total += len(f.Matches)
		for _, m := range f.Matches {
			for _, v := range m.Outputs {
				check.Outputs[v] = true
			}
		}
	}
	for _, f := range p.Found {
		matched := map[*onnx.Node]bool{}
		judge := func(m *patterns.Match) {
			for _, n := range m.Nodes {
				matched[n] = true
			}
			for _, c := range p.judgeWhole(f.scope, m, check) {
				p.accepted = append(p.accepted, c)
				c.EachSubgraph(func(g *onnx.Graph) { within[g] = true })
			}
		}
		if within[f.Graph] {
			done += len(f.Matches)
			continue
		}
		for _, m := range f.Matches {
			judge(m)
			done++
			p.request.Progress(done, total)
		}
		for _, m := range p.secondLook(f, p.accepted) {
			judge(m)
		}
		p.reportMisses(f.Misses, matched)
	}
	p.Report.Weights = p.Report.sumWeights()
	p.Report.Repairs = repaired(p.Report.Sites)
	p.Report.TimeMS.Check = lap(&start)
}

// Replace replaces every site that the report calls fused, and changes the caches if requested. If there is no site, it
// restores functions that were inlined only for the search (inline.Auto). If it returns an error, the model must not be
// used.
func (p *Plan) Replace() error {
	start := time.Now()
	p.Report.DryRun = false
	read := readInitializers(p.run.Model)
	if err := p.inOrder(rewriting); err != nil {
		return err
	}
	p.Report.Assumed = append(p.Report.Assumed, p.run.Assumed()...)
	if p.Report.Changed {
		p.Report.Variants = variants(p.run.Model)
		for g, values := range read {
			new(edit.Change).RemoveUnused(g, values)
		}
	}
	p.Report.TimeMS.Rewrite = lap(&start)
	return nil
}

func (p *Plan) replaceSites() error {
	if len(p.accepted) == 0 {
		if p.restore == nil {
			return nil
		}
		p.Report.Inlined = nil
		if o := p.Report.Opset; o != nil && o.Reason == "" {
			p.Report.Opset = nil
		}
		return p.restore()
	}
	new(edit.Change).PlainInitializers(p.run.Model)
	p.dropFalseShapes()
	if err := p.replace(p.accepted); err != nil {
		return err
	}
	p.Report.Changed = true
	return nil
}

// holdsOthers reports whether patterns of other ops may match inside m, and those matches are not already parts of m.
func holdsOthers(m *patterns.Match) bool {
	op := fused.Lookup(m.Op)
	return m.Op == fused.MoEName || m.Op == fused.AddLayerNormName ||
		op != nil && len(op.Parts) > 0 && len(m.Parts) == 0
}

// secondLook finds the blocks inside refused matches of the graph that span several blocks, such as the experts of a
// mixture: their parts are not searched while the whole may be replaced.
func (p *Plan) secondLook(f *Found, accepted []*candidate) []*patterns.Match {
	wholes := slices.DeleteFunc(slices.Clone(f.Matches), func(m *patterns.Match) bool {
		return m.Domain != fused.Domain || !holdsOthers(m)
	})
	if len(wholes) == 0 || p.request.Patterns == nil {
		return nil
	}
	taken := map[*onnx.Node]bool{}
	for _, c := range accepted {
		for _, n := range c.Nodes() {
			taken[n] = true
		}
	}
	refused, inside := map[string]bool{}, map[*onnx.Node]bool{}
	for _, m := range wholes {
		if !taken[m.Root] {
			refused[m.Pattern] = true
			for _, n := range m.Nodes {
				inside[n] = true
			}
		}
	}
	if len(refused) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, m := range f.Matches {
		known[f.scope.ID(m)] = true
		for _, part := range m.Parts {
			known[f.scope.ID(part)] = true
		}
	}
	set := p.request.Patterns.Select(func(x *patterns.Pattern) bool { return !refused[x.Name] })
	found, _ := set.Find(f.Graph, p.run.Facts)
	return slices.DeleteFunc(found, func(m *patterns.Match) bool {
		return known[f.scope.ID(m)] || !inside[m.Root] ||
			slices.ContainsFunc(m.Nodes, func(n *onnx.Node) bool { return taken[n] })
	})
}

func (p *Plan) reportMisses(misses []*patterns.Miss, matched map[*onnx.Node]bool) {
	for _, m := range misses {
		at := m.Anchor
		if at == nil {
			at = m.Reason.Node
		}
		if at == nil || matched[at] && m.Expected != "" || !p.request.KeepPattern(m.Pattern) ||
			!p.request.KeepNode(at) ||
			p.request.ids != nil {
			continue
		}
		if m.Reason.Code == reason.Limit {
			p.Report.giveUp(m)
			continue
		}
		site := SiteReport{Pattern: m.Pattern, Nodes: []string{at.Label()}, Node: at.Label()}
		site.explain(m.Reason)
		site.Status = Missed
		if n := m.Reason.Node; n != nil && n != at {
			site.Nodes = append(site.Nodes, n.Label())
		}
		p.Report.Sites = append(p.Report.Sites, site)
	}
}

func lap(start *time.Time) float64 {
	now := time.Now()
	ms := float64(now.Sub(*start).Microseconds()) / 1000
	*start = now
	return ms
}
