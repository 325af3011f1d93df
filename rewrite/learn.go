package rewrite

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/learn"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// fittedSite is a fitted block, or one of the two blocks of a joined match.
type fittedSite struct {
	scope   *pass.Scope
	match   *patterns.Match
	pattern *learntPattern // the pattern written for it
}

// learntPattern is a pattern with the sites that it was written for.
type learntPattern struct {
	*learn.Pattern
	sites []*fittedSite
}

// learner writes the patterns of a plan.
type learner struct {
	plan     *Plan
	sites    []*fittedSite
	views    map[*onnx.Graph]*match.View
	patterns []*learntPattern
	report   *LearnReport
}

// learn writes the patterns, and drops those that fail.
func (p *Plan) learn() error {
	l := &learner{plan: p, views: map[*onnx.Graph]*match.View{}, report: &LearnReport{Patterns: []LearntPattern{}}}
	p.Report.Learnt = l.report
	for _, c := range p.accepted {
		l.collect(c.Scope, c.Match)
	}
	if p.request.Target != nil { // the target changed the replacements
		l.asFound()
	}
	l.report.Fitted = len(l.sites)
	for _, s := range l.sites {
		l.write(s)
	}
	slices.SortStableFunc(l.patterns, func(a, b *learntPattern) int { return b.Nodes - a.Nodes })
	l.name()
	for len(l.patterns) > 0 {
		set, err := p.request.Patterns.With("learnt", l.text())
		if err != nil {
			return fmt.Errorf("the learned patterns do not parse: %w", err)
		}
		if !l.dropFailing(p.again(set)) {
			l.measure(set)
			break
		}
	}
	l.finish()
	return nil
}

// collect notes a fitted block, or the fitted parts of a joined one.
func (l *learner) collect(s *pass.Scope, m *patterns.Match) {
	if m.Op == fused.NormRotaryName {
		for _, part := range m.Parts {
			l.collect(s, part)
		}
	} else if m.Fitted() {
		l.sites = append(l.sites, &fittedSite{scope: s, match: m})
	}
}

// asFound resets the sites' matches to those that were found.
func (l *learner) asFound() {
	byID := map[string]*patterns.Match{}
	var note func(s *pass.Scope, m *patterns.Match)
	note = func(s *pass.Scope, m *patterns.Match) {
		byID[s.ID(m)] = m
		for _, part := range m.Parts {
			note(s, part)
		}
	}
	for _, f := range l.plan.Found {
		matches, _ := l.plan.request.find(f.Graph, l.plan.run.Facts)
		for _, m := range matches {
			note(f.scope, m)
		}
	}
	for _, s := range l.sites {
		if m := byID[s.scope.ID(s.match)]; m != nil {
			s.match = m
		}
	}
}

func (l *learner) view(g *onnx.Graph) *match.View {
	if l.views[g] == nil {
		l.views[g] = l.plan.request.Patterns.View(g, l.plan.run.Facts)
	}
	return l.views[g]
}

// write writes the pattern of a site. Sites with equal text share a pattern.
func (l *learner) write(s *fittedSite) {
	p, err := learn.Write(l.plan.request.Patterns, l.view(s.scope.Graph), s.match)
	if err != nil {
		l.leave(s, err.Error())
		return
	}
	i := slices.IndexFunc(l.patterns, func(q *learntPattern) bool { return q.String() == p.String() })
	if i < 0 {
		i = len(l.patterns)
		l.patterns = append(l.patterns, &learntPattern{Pattern: p})
	}
	s.pattern = l.patterns[i]
	s.pattern.sites = append(s.pattern.sites, s)
}

// leave notes that no pattern is learned from a site.
func (l *learner) leave(s *fittedSite, why string) {
	l.report.Left = append(l.report.Left,
		UnlearntSite{ID: s.scope.ID(s.match), Node: s.match.Root.Label(), Reason: why})
}

// name sets unique names for the patterns.
func (l *learner) name() {
	taken := map[string]bool{}
	for _, p := range l.plan.request.Patterns.Patterns {
		taken[p.Name] = true
	}
	for _, p := range l.patterns {
		name := p.Called()
		for i := 2; taken[name]; i++ {
			name = fmt.Sprintf("%s_%d", p.Called(), i)
		}
		taken[name] = true
		p.Name = name
	}
}

// again plans the same prepared model with other patterns.
func (p *Plan) again(set *patterns.Set) *Plan {
	other, c, r := *p, *p.request, Report{Kernels: slices.Clone(p.Report.Kernels)}
	c.Patterns, c.find, c.ids, c.Plan = set, set.Find, nil, nil
	c.KeepPattern, c.Progress = func(string) bool { return true }, func(int, int) {}
	floats := *p.floats // it lists the accepted experts
	other.request, other.Report, other.accepted, other.asked, other.floats = &c, &r, nil, nil, &floats
	other.definitions = p.definitions.clone()
	other.find()
	other.check()
	return &other
}

// dropFailing drops patterns that do not find their own sites with an equal op, or that take nodes of other blocks. It
// reports whether it dropped any.
func (l *learner) dropFailing(other *Plan) bool {
	found := map[*onnx.Value]*patterns.Match{} // by their outputs
	var note func(s *pass.Scope, m *patterns.Match)
	note = func(s *pass.Scope, m *patterns.Match) {
		for _, v := range m.Outputs {
			found[l.view(s.Graph).Resolve(v)] = m
		}
		if m.Op == fused.NormRotaryName {
			for _, part := range m.Parts {
				note(s, part)
			}
		}
	}
	for _, c := range other.accepted {
		note(c.Scope, c.Match)
	}
	at := func(s *pass.Scope, m *patterns.Match) *patterns.Match {
		return found[l.view(s.Graph).Resolve(m.Outputs[0])]
	}
	why := map[*learntPattern]string{}
	for _, s := range l.sites {
		if m := at(s.scope, s.match); s.pattern != nil && m != nil && m.Op == withSum(s.match.Op) {
			l.move(s, m.Pattern)
		}
		if p := s.pattern; p != nil && why[p] == "" {
			why[p] = s.differs(at(s.scope, s.match), other)
		}
	}
	for _, c := range l.plan.accepted {
		if m := at(c.Scope, c.Match); m == nil || m.Op != c.Match.Op && m.Op != withSum(c.Match.Op) {
			if p := l.inTheWay(other, c.Match); p != nil && why[p] == "" {
				why[p] = fmt.Sprintf("it takes nodes of the %s at %q", c.Match.Op, c.Match.Root.Label())
			}
		}
	}
	before := len(l.patterns)
	l.patterns = slices.DeleteFunc(l.patterns, func(p *learntPattern) bool {
		for _, s := range p.sites {
			if why[p] != "" {
				l.leave(s, why[p])
				s.pattern = nil
			}
		}
		return why[p] != "" || len(p.sites) == 0
	})
	return len(l.patterns) < before
}

// withSum returns the op that combines a norm with the addition before it.
func withSum(op string) string { return "Add" + op }

// move assigns a site to the learned pattern of this name, which matches the site together with the nodes before it.
func (l *learner) move(s *fittedSite, name string) {
	i := slices.IndexFunc(l.patterns, func(p *learntPattern) bool { return p.Name == name })
	if i < 0 {
		return
	}
	s.pattern.sites = slices.DeleteFunc(s.pattern.sites, func(o *fittedSite) bool { return o == s })
	s.pattern = l.patterns[i]
	s.pattern.sites = append(s.pattern.sites, s)
}

// differs returns how the match found at a site differs from the fitted one, or "".
func (s *fittedSite) differs(m *patterns.Match, other *Plan) string {
	if m == nil || m.Pattern != s.pattern.Name {
		for _, site := range other.Report.Sites {
			if site.Match != nil && site.Status != Fused && site.Pattern == s.pattern.Name &&
				slices.Contains(site.Match.Outputs, s.match.Outputs[0]) {
				return "its pattern matches, but " + site.Reason
			}
		}
		if m != nil {
			return "pattern " + m.Pattern + " takes its place"
		}
		return "its pattern does not find it"
	}
	for _, want := range s.match.Attributes {
		i := slices.IndexFunc(m.Attributes, func(a *onnx.Attribute) bool { return a.Name == want.Name })
		if i < 0 || !sameNumber(m.Attributes[i], want) {
			return fmt.Sprintf("its pattern sets another %s", want.Name)
		}
	}
	return ""
}

// sameNumber reports whether two attributes are equal. Captured numbers may still be floats.
func sameNumber(a, b *onnx.Attribute) bool {
	x, y := float64(a.Float)+float64(a.Int), float64(b.Float)+float64(b.Int)
	return math.Abs(x-y) <= 1e-6*math.Abs(y) && a.String == b.String && slices.Equal(a.Ints, b.Ints)
}

// inTheWay returns the learned pattern that matches nodes of a block, or nil.
func (l *learner) inTheWay(other *Plan, m *patterns.Match) *learntPattern {
	for _, f := range other.Found {
		for _, n := range f.Matches {
			if !slices.ContainsFunc(n.Nodes, func(n *onnx.Node) bool { return slices.Contains(m.Nodes, n) }) {
				continue
			}
			for _, p := range l.patterns {
				if p.Name == n.Pattern {
					return p
				}
			}
		}
	}
	return nil
}

// measureFor limits the time for comparing the two searches.
const measureFor = 2 * time.Second

// measure times the search for blocks with the plan's patterns and with the learned ones.
func (l *learner) measure(learnt *patterns.Set) {
	p := l.plan
	search := func(set *patterns.Set) float64 {
		start := time.Now()
		for _, s := range p.run.Scopes() {
			set.Find(s.Graph, p.run.Facts)
		}
		return lap(&start)
	}
	fits, patterns := math.Inf(1), math.Inf(1)
	for i, start := 0, time.Now(); i < 5 && (i < 2 || time.Since(start) < measureFor); i++ {
		fits, patterns = min(fits, search(p.request.Patterns)), min(patterns, search(learnt))
	}
	l.report.FindMS, l.report.FindLearntMS = fits, patterns
}

func (l *learner) finish() {
	for _, p := range l.patterns {
		q := LearntPattern{Name: p.Name, Op: onnx.OpName(p.sites[0].match.Domain, p.sites[0].match.Op),
			Sites:   []string{},
			Numbers: p.Generalized(), Text: p.String()}
		for _, s := range p.sites {
			q.Sites = append(q.Sites, s.scope.ID(s.match))
		}
		l.report.Patterns = append(l.report.Patterns, q)
		l.report.Learnt += len(p.sites)
	}
	l.report.Text = l.text()
}

// text returns the pattern file.
func (l *learner) text() string {
	f := learn.File{Model: l.plan.run.Model.Path}
	for _, p := range l.patterns {
		f.Add(p.Pattern, p.sites[0].match.Root.Label(), len(p.sites))
	}
	return f.String()
}
