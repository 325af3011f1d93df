package rewrite

import (
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// ApplyKernel rewrites the sites of the model that one kernel takes. The error is an *UnknownKernelError or an
// *UnavailableError when the kernel does not exist or cannot be used here: it is never passed over.
func ApplyKernel(m *onnx.Model, id string, options ...Option) (*Report, error) {
	if _, err := lookup(id); err != nil {
		return nil, err
	}
	return ApplyDefaultKernels(m, id, options...)
}

// ApplyDefaultKernels rewrites the sites of the model that the kernels of include take: Auto stands for all that are
// available (the others are named in the report), None (or nothing) for none, and a list of ids separated by commas for
// just those, each of which must be available. On an error before the rewriting the model is unchanged.
func ApplyDefaultKernels(m *onnx.Model, include string, options ...Option) (*Report, error) {
	c := newConfig(options)
	chosen, r, err := c.choose(include)
	if err != nil {
		return nil, err
	}
	for _, name := range c.names {
		r.pattern(name)
	}
	if len(chosen) == 0 {
		return r, nil
	}
	a := &applier{model: m, config: c, report: r, byOp: map[string]*Kernel{}, chosen: map[*Kernel]bool{}, functions: map[string]*onnx.Function{}, bodies: map[string]string{}, packed: map[string]*onnx.Value{}}
	for _, k := range chosen {
		a.chosen[k] = true
		for _, op := range k.Ops {
			if a.byOp[op] == nil {
				a.byOp[op] = k
			}
		}
	}
	return r, a.apply()
}

// choose returns the kernels that take sites, and the report that begins with them.
func (c *config) choose(include string) ([]*Kernel, *Report, error) {
	r := &Report{Schema: Schema, Patterns: []PatternReport{}, Sites: []SiteReport{}, DryRun: c.dryRun}
	if c.target != nil {
		var chosen []*Kernel
		chosen, r.Kernels = chooseTarget(c.target)
		r.Target = c.target.Name
		return chosen, r, nil
	}
	chosen, kernels, err := choose(include, c.environment(), c.backend, c.assumes)
	if err == nil {
		chosen, kernels, err = c.backend.rank(strings.TrimSpace(include) == Auto, chosen, kernels)
	}
	r.Kernels, r.Backend, r.PassedOver = kernels, c.backend.String(), c.backend.PassedOver(kernels)
	return chosen, r, err
}

// applier is one run over a model.
type applier struct {
	model  *onnx.Model
	config *config
	report *Report
	chosen map[*Kernel]bool   // the selected kernels
	byOp   map[string]*Kernel // the selected kernel that takes a fused op
	takers map[string]*Kernel // the registered kernel that takes a built-in pattern, selected or not
	facts  *infer.Facts
	// functions are the definitions in use, by domain, name and overload.
	functions map[string]*onnx.Function
	bodies    map[string]string      // the variant of an op that functions' bodies call
	packed    map[string]*onnx.Value // initializers made of others, by what they are made of
}

// scope is a graph that matches are looked for in.
type scope struct {
	graph    *onnx.Graph
	function *onnx.Function // whose body the graph is, or is part of
	order    map[*onnx.Node]int
}

func (a *applier) apply() error {
	start := time.Now()
	undo := plainInitializers(a.model)
	defer func() {
		if !a.report.Changed {
			undo()
		}
	}()
	if err := a.inlineFunctions(); err != nil {
		return err
	}
	lap(&start)
	a.facts = infer.Analyze(a.model)
	a.report.TimeMS.Infer = lap(&start)

	type found struct {
		scope   *scope
		matches []*patterns.Match
		misses  []*patterns.Miss
	}
	var all []found
	total := 0
	for _, s := range a.scopes() {
		f := found{scope: s}
		f.matches, f.misses = a.config.find(s.graph, a.facts)
		a.config.observe(s.graph, a.facts, f.matches, f.misses)
		total += len(f.matches)
		all = append(all, f)
	}
	a.report.TimeMS.Match = lap(&start)

	check := newChecker(a.model, a.facts, a.config)
	var accepted []*candidate
	gone := map[*onnx.Graph]bool{} // within nodes that are replaced as a whole
	done := 0
	for _, f := range all {
		if gone[f.scope.graph] {
			done += len(f.matches)
			continue
		}
		matched := map[*onnx.Node]bool{}
		sites := f.matches
		for i := 0; i < len(sites); i++ {
			match := sites[i]
			for _, n := range match.Nodes {
				matched[n] = true
			}
			for _, c := range a.judgeWhole(f.scope, match, check) {
				accepted = append(accepted, c)
				c.slice.eachSubgraph(func(g *onnx.Graph) { gone[g] = true })
			}
			if i < len(f.matches) {
				done++
				a.config.progress(done, total)
			}
			if i == len(f.matches)-1 {
				sites = append(slices.Clip(sites), a.secondLook(f.scope, f.matches, accepted)...)
			}
		}
		a.reportMisses(f.misses, matched)
	}
	a.report.Weights = a.report.sumWeights()
	a.report.Repairs = repaired(a.report.Sites)
	a.report.TimeMS.Check = lap(&start)
	if a.config.dryRun || len(accepted) == 0 {
		return nil
	}
	err := a.replace(accepted)
	a.report.Changed = true
	for k := range a.chosen {
		if k.Device == "npu" {
			a.report.CANN = avoid(a.scopes(), a.facts)
			break
		}
	}
	a.report.TimeMS.Rewrite = lap(&start)
	return err
}

// secondLook finds what stands inside the refused sites of the scope that are wholes of several blocks, such as the experts of a
// mixture: their parts are not looked for while the whole may be replaced.
func (a *applier) secondLook(s *scope, judged []*patterns.Match, accepted []*candidate) []*patterns.Match {
	if a.config.set == nil {
		return nil
	}
	type place struct {
		pattern string
		root    *onnx.Node
	}
	known := map[place]bool{}
	wholes := map[string]bool{}
	inside, taken := map[*onnx.Node]bool{}, map[*onnx.Node]bool{}
	for _, c := range accepted {
		for _, n := range c.slice.nodes {
			taken[n] = true
		}
	}
	for _, m := range judged {
		known[place{m.Pattern, m.Root}] = true
		for _, p := range m.Parts {
			known[place{p.Pattern, p.Root}] = true
		}
		if m.Domain == fused.Domain && m.Op == experts && !taken[m.Root] {
			wholes[m.Pattern] = true
			for _, n := range m.Nodes {
				inside[n] = true
			}
		}
	}
	if len(wholes) == 0 {
		return nil
	}
	found, _ := a.config.set.Select(func(p *patterns.Pattern) bool { return !wholes[p.Name] }).Find(s.graph, a.facts)
	return slices.DeleteFunc(found, func(m *patterns.Match) bool {
		return known[place{m.Pattern, m.Root}] || !inside[m.Root] || slices.ContainsFunc(m.Nodes, func(n *onnx.Node) bool { return taken[n] })
	})
}

// scopes lists the graphs to look in: all but the bodies of the ops that patterns rewrite to.
func (a *applier) scopes() []*scope {
	var list []*scope
	a.model.Graph.Walk(func(g *onnx.Graph) { list = append(list, &scope{graph: g}) })
	for _, f := range a.model.Functions {
		if f.Domain != fused.Domain && !a.config.defines(f) {
			f.Body.Walk(func(g *onnx.Graph) { list = append(list, &scope{graph: g, function: f}) })
		}
	}
	return list
}

func (a *applier) reportMisses(misses []*patterns.Miss, matched map[*onnx.Node]bool) {
	for _, m := range misses {
		at := m.Anchor
		if at == nil {
			at = m.Reason.Node
		}
		if at == nil || matched[at] && m.Expected != "" || !a.config.keepPattern(m.Pattern) || !a.config.keepNode(at) {
			continue
		}
		site := SiteReport{Pattern: m.Pattern, Nodes: []string{nodeName(at)}, Node: nodeName(at), Status: Missed, Reason: m.Reason.Error(), Code: m.Reason.Code}
		if n := m.Reason.Node; n != nil && n != at {
			site.Nodes = append(site.Nodes, nodeName(n))
		}
		a.report.Sites = append(a.report.Sites, site)
	}
}

func lap(start *time.Time) float64 {
	now := time.Now()
	ms := float64(now.Sub(*start).Microseconds()) / 1000
	*start = now
	return ms
}
