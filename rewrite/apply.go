package rewrite

import (
	"fmt"
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
	chosen, kernels, err := choose(include, c.environment(), c.assume)
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: Schema, Patterns: []PatternReport{}, Sites: []SiteReport{}, Kernels: kernels, DryRun: c.dryRun}
	for _, name := range c.names {
		r.pattern(name)
	}
	if len(chosen) == 0 {
		return r, nil
	}
	a := &applier{model: m, config: c, report: r, byOp: map[string]*Kernel{}, functions: map[string]*onnx.Function{}}
	for _, k := range chosen {
		for _, op := range k.Ops {
			if a.byOp[op] == nil {
				a.byOp[op] = k
			}
		}
	}
	return r, a.apply()
}

// applier is one run over a model.
type applier struct {
	model  *onnx.Model
	config *config
	report *Report
	byOp   map[string]*Kernel // the selected kernel that takes a fused op
	facts  *infer.Facts
	// functions are the definitions in use, by op and overload.
	functions map[string]*onnx.Function
}

// scope is a graph that matches are looked for in.
type scope struct {
	graph    *onnx.Graph
	function *onnx.Function // whose body the graph is, or is part of
	order    map[*onnx.Node]int
}

// candidate is a match that a selected kernel takes.
type candidate struct {
	match    *patterns.Match
	scope    *scope
	op       *fused.Op
	kernel   *Kernel
	slice    *slice
	site     fused.Site
	function *onnx.Function // the definition
}

func (a *applier) apply() error {
	start := time.Now()
	undo := plainInitializers(a.model)
	defer func() {
		if !a.report.Changed {
			undo()
		}
	}()
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
		total += len(f.matches)
		all = append(all, f)
	}
	a.report.TimeMS.Match = lap(&start)

	check := newChecker(a.model, a.facts, a.config)
	var accepted []*candidate
	done := 0
	for _, f := range all {
		matched := map[*onnx.Node]bool{}
		for _, match := range f.matches {
			for _, n := range match.Nodes {
				matched[n] = true
			}
			if c := a.judge(f.scope, match, check); c != nil {
				accepted = append(accepted, c)
			}
			done++
			a.config.progress(done, total)
		}
		a.reportMisses(f.misses, matched)
	}
	a.report.TimeMS.Check = lap(&start)
	if a.config.dryRun || len(accepted) == 0 {
		return nil
	}
	err := a.replace(accepted)
	a.report.Changed = true
	a.report.TimeMS.Rewrite = lap(&start)
	return err
}

// scopes lists the graphs to look in: all but the bodies of the fused ops themselves.
func (a *applier) scopes() []*scope {
	var list []*scope
	a.model.Graph.Walk(func(g *onnx.Graph) { list = append(list, &scope{graph: g}) })
	for _, f := range a.model.Functions {
		if f.Domain != fused.Domain {
			f.Body.Walk(func(g *onnx.Graph) { list = append(list, &scope{graph: g, function: f}) })
		}
	}
	return list
}

// judge examines one match, writes its line of the report, and gives the candidate to replace, nil when there is none.
func (a *applier) judge(s *scope, m *patterns.Match, check *checker) *candidate {
	count := a.report.pattern(m.Pattern)
	count.Found++
	kernel := a.byOp[m.Op]
	if m.Domain != fused.Domain || fused.Lookup(m.Op) == nil {
		kernel = nil
	} else if kernel == nil {
		return nil // its kernel was not asked for
	}
	if !a.config.keepPattern(m.Pattern) || !a.config.keepNode(m.Root) {
		return nil
	}
	site := SiteReport{Pattern: m.Pattern, Op: m.Op, Nodes: nodeNames(m.Nodes), Node: nodeName(m.Root), Status: Fused}
	c, err := a.examine(s, m, kernel)
	if err == nil {
		site.Check, err = check.check(c)
	}
	if err != nil {
		site.Status, site.Reason = Refused, err.Error()
		count.Refused++
		c = nil
	} else {
		site.Kernel = kernel.ID
		count.Fused++
		a.report.kernel(kernel.ID).Sites++
	}
	a.report.Sites = append(a.report.Sites, site)
	return c
}

// examine gathers what is known of a match without evaluating it. Its errors are reasons to refuse.
func (a *applier) examine(s *scope, m *patterns.Match, kernel *Kernel) (*candidate, error) {
	op := fused.Lookup(m.Op)
	if kernel == nil || op == nil {
		return nil, fmt.Errorf("the pattern rewrites to %s.%s, which is not in the catalogue of fused ops", m.Domain, m.Op)
	}
	if len(m.Inputs) != len(op.Inputs) || len(m.Outputs) != len(op.Outputs) {
		return nil, fmt.Errorf("mojo.%s has %d inputs and %d outputs, the match %d and %d", op.Name,
			len(op.Inputs), len(op.Outputs), len(m.Inputs), len(m.Outputs))
	}
	c := &candidate{match: m, scope: s, op: op, kernel: kernel}
	c.site = fused.Site{Attributes: m.Attributes, Opset: a.model.Opset("")}
	if f := s.function; f != nil { // seen with onnxruntime 1.31: "mojo:GLU(-1) is not a registered function/op"
		return nil, fmt.Errorf("it stands in function %s.%s, and onnxruntime does not find an overload that is called from the body "+
			"of a function: inline the model's functions first (onnx.inliner)", f.Domain, f.Name)
	}
	if err := a.describe(c); err != nil {
		return nil, err
	}
	var err error
	if c.function, err = a.define(c); err != nil {
		return nil, err
	}
	for i, t := range op.OutputTypes(c.site) {
		if have := a.facts.DataType(m.Outputs[i]); have != t {
			return nil, fmt.Errorf("output %q is %s, mojo.%s gives %s", m.Outputs[i].Name, have, op.Name, t)
		}
	}
	if c.slice, err = cut(m, s.graph, a.facts); err != nil {
		return nil, err
	}
	return c, a.checkOrder(c)
}

// define gives the definition of a candidate's op, one for all sites of an overload.
func (a *applier) define(c *candidate) (*onnx.Function, error) {
	key := c.op.Name + "." + c.op.Overload(c.site)
	if f := a.functions[key]; f != nil {
		return f, nil
	}
	f, err := c.op.Function(c.site)
	if err != nil {
		return nil, err
	}
	if old := a.model.Function(fused.Domain, f.Name, f.Overload); old != nil && !sameFunction(old, f) {
		return nil, fmt.Errorf("the model has another function mojo.%s (overload %q)", f.Name, f.Overload)
	}
	a.functions[key] = f
	return f, nil
}

// describe fills the types and shapes of a candidate's site and has the op look at them in every world.
func (a *applier) describe(c *candidate) error {
	c.site.Types = make([]onnx.DataType, len(c.match.Inputs))
	c.site.Dims = make([][]int64, len(c.match.Inputs))
	for i, v := range c.match.Inputs {
		if v == nil {
			return fmt.Errorf("input %s of mojo.%s is missing", c.op.Inputs[i].Name, c.op.Name)
		}
		if c.site.Types[i] = a.facts.DataType(v); c.site.Types[i] == onnx.Undefined {
			return fmt.Errorf("the type of %q is unknown", v.Name)
		}
		c.site.Dims[i] = a.dims(v)
	}
	if err := c.op.Supports(c.site); err != nil {
		return err
	}
	for i := 1; i < len(c.op.SameShape); i++ {
		v, w := c.match.Inputs[c.op.SameShape[0]], c.match.Inputs[c.op.SameShape[i]]
		if v != w && !a.facts.SameShape(v, w) {
			return fmt.Errorf("%q and %q are not known to have one shape, and mojo.%s does not broadcast", v.Name, w.Name, c.op.Name)
		}
	}
	for world := range infer.Worlds {
		concrete := c.site
		concrete.Dims = make([][]int64, len(c.match.Inputs))
		for i, v := range c.match.Inputs {
			concrete.Dims[i] = c.site.Dims[i]
			if s, ok := a.facts.Shape(v, world); ok {
				concrete.Dims[i] = s
			}
		}
		if err := c.op.Supports(concrete); err != nil {
			return err
		}
	}
	return nil
}

// dims gives the shape of v as far as it is the same for all symbolic dimensions, nil when the rank is unknown.
func (a *applier) dims(v *onnx.Value) []int64 {
	rank, ok := a.facts.Rank(v)
	if !ok {
		return nil
	}
	dims := make([]int64, rank)
	for i := range dims {
		if dims[i], ok = a.facts.Dim(v, i); !ok {
			dims[i] = -1
		}
	}
	return dims
}

func (a *applier) reportMisses(misses []*patterns.Miss, matched map[*onnx.Node]bool) {
	for _, m := range misses {
		at := m.Anchor
		if at == nil {
			at = m.Node
		}
		if at == nil || matched[at] || !a.config.keepPattern(m.Pattern) || !a.config.keepNode(at) {
			continue
		}
		site := SiteReport{Pattern: m.Pattern, Nodes: []string{nodeName(at)}, Node: nodeName(at), Status: Missed, Reason: m.Reason()}
		if m.Node != nil && m.Node != at {
			site.Nodes = append(site.Nodes, nodeName(m.Node))
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
