package match

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// This file finds the reason why an anchor node was left out. The node at which an attempt stops says little: with
// operands in any order and several spellings, most branches stop somewhere. So the attempts are repeated leniently:
// one difference is forgiven, and the search continues after it. The nearest pattern then matches except for that
// difference or a condition, which is the reason. If no pattern matches this way, two differences are forgiven.

const (
	// nearHops bounds the distance from an anchor node to the root of a pattern, maxRoots the number of roots tried.
	nearHops = 8
	maxRoots = 48
	// upHops bounds the distance from the value where an attempt stops back to the anchor.
	upHops = 4
	// lenientSteps bounds all lenient attempts in a graph, modelSteps those in all graphs of a model. So graphs full of
	// anchors, or with many branches, cost no more than one.
	lenientSteps = 1 << 18
	modelSteps   = 1 << 19
)

// nearMiss is a pattern that matches except for some differences.
type nearMiss struct {
	pattern *notation.Pattern
	nodes   []*onnx.Node // that match
	reasons []*failure   // the differences, then the first condition that does not hold
	unmet   int          // the number of conditions that do not hold
	holds   bool         // the anchor is among nodes
	matched int
	missing int
}

// better reports whether m explains more than o.
func (m *nearMiss) better(o *nearMiss) bool {
	if o == nil {
		return true
	}
	if m.holds != o.holds {
		return m.holds
	}
	if m.defects() != o.defects() {
		return m.defects() < o.defects()
	}
	// fractions of the whole, multiplied out
	if c := cmp.Compare(m.matched*(o.matched+o.missing), o.matched*(m.matched+m.missing)); c != 0 {
		return c > 0
	}
	// among equals, a whole match with a broken condition is nearer than one that leaves a name without a value
	switch {
	case m.whole() == o.whole() && m.unmet != o.unmet:
		return m.unmet < o.unmet
	case m.matched != o.matched:
		return m.matched > o.matched
	}
	return m.whole() && !o.whole()
}

// defects counts the differences. Conditions that also do not hold are usually consequences.
func (m *nearMiss) defects() int {
	if m.unmet > 0 && len(m.reasons) > 1 {
		return len(m.reasons) - 1
	}
	return len(m.reasons)
}

// whole reports whether only conditions do not hold.
func (m *nearMiss) whole() bool { return m.reasons[0].where }

// convincing reports whether enough of the pattern matches to name it.
func (m *nearMiss) convincing() bool {
	size := m.matched + m.missing
	switch {
	case m.reasons[0].view:
		return true
	case len(m.reasons) > 1:
		return m.holds && 3*m.matched >= 2*size && m.matched > 2
	case m.holds:
		return 2*m.matched >= size
	}
	return m.matched >= 2 && 5*m.matched >= 2*size
}

// alike reports whether both name the same wrong place, so that each names one of the alternatives there.
func (m *nearMiss) alike(o *nearMiss) bool {
	if m.pattern != o.pattern || m.defects() != 1 || o.defects() != 1 {
		return false
	}
	f, g := m.reasons[0], o.reasons[0]
	return f.at == g.at && f.between == g.between && !f.where && !g.where && !f.fixed() && !g.fixed()
}

func (m *nearMiss) explain(s *Attempt) {
	for _, f := range m.reasons {
		f.explain(s)
	}
}

// seeker looks for near misses in one graph.
type seeker struct {
	view    *View
	index   *Index
	claimed func(*onnx.Node) bool    // reports whether a match has taken a node
	near    map[*onnx.Node]*nearMiss // by anchor
	tried   map[*onnx.Node]bool      // roots
	lenient int
	steps   int // of the graph
	known   *knownExprs

	gaveUp map[*onnx.Node]bool // anchors at which attempts were skipped
}

// NearMissSearch is the name of the search for near misses in its Miss when it was given up.
const NearMissSearch = "near misses"

// spent reports whether no further lenient attempt may begin.
func (k *seeker) spent() bool { return k.steps > lenientSteps || k.known.steps > modelSteps }

// around tries the patterns that an anchor may belong to at the nodes after it.
func (k *seeker) around(anchor *onnx.Node) {
	readers := func(n *onnx.Node) (list []*onnx.Node) {
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			for _, u := range v.Uses() {
				if len(list) == maxRoots {
					break
				}
				if u.Node.Graph == anchor.Graph {
					list = append(list, u.Node)
				}
			}
		}
		return list
	}
	looked := 0
	for n := range onnx.Near(nearHops, readers, anchor) {
		if !k.tried[n] && !k.claimed(n) {
			if k.spent() && len(k.index.At(n)) > 0 {
				k.gaveUp[anchor] = true
				break
			}
			k.tried[n] = true
			k.at(n)
		}
		if looked++; looked == maxRoots {
			break
		}
	}
}

// at makes the lenient attempts that begin at one node.
func (k *seeker) at(root *onnx.Node) {
	for _, p := range k.index.At(root) {
		for _, out := range root.Outputs {
			if out == nil || k.view.Resolve(out) != out || k.spent() {
				continue
			}
			s := NewAttempt(k.view, p)
			s.lenient, s.known = k.lenient, k.known
			s.match(p.Root(), out, func() bool {
				if m := s.nearMiss(out); m != nil {
					k.offer(s, m)
				}
				return false
			})
			k.steps += 1 + s.steps
			k.known.steps += 1 + s.steps
		}
	}
}

// nearMiss returns the result of a completed lenient attempt; nil if there is no difference.
func (s *Attempt) nearMiss(root *onnx.Value) *nearMiss {
	m := &nearMiss{pattern: s.Pattern}
	for _, f := range s.forgiven {
		c := *f
		m.reasons = append(m.reasons, &c)
		m.missing += f.missing
	}
	for _, c := range s.Pattern.Where {
		x, err := s.Eval(c.Expr)
		if err == nil && truth(x) || err != nil && s.forgiven != nil {
			continue // a forgiven failure may have left a name without a value
		}
		if m.unmet++; m.unmet == 1 {
			m.reasons = append(m.reasons, s.unmet(c, root, err))
		}
	}
	if len(m.reasons) == 0 {
		return nil
	}
	for _, n := range s.Nodes {
		if !slices.Contains(m.nodes, n) {
			m.nodes = append(m.nodes, n)
		}
	}
	m.matched = len(m.nodes)
	return m
}

// offer assigns a near miss to the anchors that it may explain.
func (k *seeker) offer(s *Attempt, m *nearMiss) {
	if slices.ContainsFunc(m.nodes, func(n *onnx.Node) bool { return k.claimed(n) }) {
		return // part of it was fused as another op
	}
	give := func(n *onnx.Node, holds bool) {
		if k.claimed(n) || !slices.Contains(m.pattern.Anchors, n.OpType) {
			return
		}
		c := *m
		c.holds = holds
		old := k.near[n]
		switch {
		case !c.convincing():
		case c.better(old):
			c.explain(s)
			k.near[n] = &c
		case !old.better(&c) && old.alike(&c):
			c.explain(s)
			old.reasons[0].expected = union(old.reasons[0].expected, c.reasons[0].expected)
		}
	}
	for _, n := range m.nodes {
		give(n, true)
	}
	if f := m.reasons[0]; !f.where {
		for _, n := range k.view.upstream(f.at) {
			if !slices.Contains(m.nodes, n) {
				give(n, false)
			}
		}
	}
}

// union appends to a the expectations of b with other words.
func union(a, b []expectation) []expectation {
	a = slices.Clone(a)
	for _, x := range b {
		if !slices.ContainsFunc(a, func(y expectation) bool { return y.words == x.words }) {
			a = append(a, x)
		}
	}
	return a
}

// upstream lists the nodes that v is computed from, a few steps back.
func (g *View) upstream(v *onnx.Value) []*onnx.Node {
	v = g.Resolve(v)
	if nodes, ok := g.near[v]; ok {
		return nodes
	}
	var nodes []*onnx.Node
	before := func(v *onnx.Value) []*onnx.Value { return g.resolved(v.MadeFrom()) }
	for w := range onnx.Near(upHops-1, before, v) {
		if w.Producer != nil && !slices.Contains(nodes, w.Producer) {
			nodes = append(nodes, w.Producer)
		}
	}
	if g.near == nil {
		g.near = map[*onnx.Value][]*onnx.Node{}
	}
	g.near[v] = nodes
	return nodes
}

// NearMisses lists the misses at anchor nodes that no match has claimed and a pattern of the index comes near to.
func (g *View) NearMisses(x *Index, claimed func(*onnx.Node) bool) []*Miss {
	anchors := map[string]bool{}
	for _, list := range x.byRoot {
		for _, p := range list {
			for _, a := range p.Anchors {
				anchors[a] = true
			}
		}
	}
	k := &seeker{view: g, index: x, claimed: claimed, near: map[*onnx.Node]*nearMiss{},
		known: g.knownExprs(), gaveUp: map[*onnx.Node]bool{}}
	for k.lenient = 1; k.lenient <= 2; k.lenient++ {
		k.tried = map[*onnx.Node]bool{}
		for _, n := range g.Graph.Nodes {
			if anchors[n.OpType] && !claimed(n) && (k.near[n] == nil || !k.near[n].holds) {
				k.around(n)
			}
		}
	}
	var misses []*Miss
	for _, n := range g.Graph.Nodes {
		if m := k.near[n]; m != nil {
			misses = append(misses, m.miss(n))
		}
	}
	maps.DeleteFunc(k.gaveUp, func(n *onnx.Node, _ bool) bool { return k.near[n] != nil })
	for _, n := range g.Graph.Nodes {
		if k.gaveUp[n] {
			return append(misses, &Miss{Pattern: NearMissSearch, Anchor: n, Reason: reason.New(reason.Limit, n,
				"the search for near misses stopped here: it reached the limit of steps for a graph, so some "+
					"near misses may not be explained").With("places", len(k.gaveUp))})
		}
	}
	return misses
}

// lacking describes a block without a part, before the part is named.
var lacking = map[reason.Code]string{reason.NotGated: "the activation is not multiplied by a second projection: "}

// miss describes the near miss for one anchor.
func (m *nearMiss) miss(anchor *onnx.Node) *Miss {
	words := func(f *failure) *Miss {
		w := &Miss{Pattern: m.pattern.Name, Anchor: anchor, Expected: f.alternatives(), Found: f.found,
			Condition: f.where, Matched: m.matched, Size: m.matched + m.missing}
		if f.view {
			w.Matched, w.Size = 0, 0
		}
		at := cmp.Or(f.node(), anchor)
		code := f.kind(at)
		w.Reason = reason.New(code, at, "%sexpected %s, found %s", lacking[code], w.Expected, w.Found)
		return w
	}
	first := words(m.reasons[0])
	if len(m.reasons) > 1 {
		first.Further = words(m.reasons[1])
	}
	return first
}
