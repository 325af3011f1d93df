package patterns

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// worlds are the assignments of numbers to symbolic dimensions in which facts are known.
const worlds = infer.Worlds

// Set is a list of patterns, tried in order at every node.
type Set struct {
	Patterns []*Pattern
	views    map[string]*view
	byRoot   map[string][]*Pattern
}

// NewSet makes an empty set.
func NewSet() *Set { return &Set{views: map[string]*view{}, byRoot: map[string][]*Pattern{}} }

// Add parses the text of a pattern file and appends its patterns. Errors are of type *Error, with line and column.
func (s *Set) Add(file, src string) error {
	pats, err := parse(file, src, s.views)
	if err != nil {
		return err
	}
	for _, p := range pats {
		s.add(p)
	}
	return nil
}

func (s *Set) add(p *Pattern) {
	s.Patterns = append(s.Patterns, p)
	for op := range p.roots {
		s.byRoot[op] = append(s.byRoot[op], p)
	}
}

// Select gives the set of the patterns that keep says yes to.
func (s *Set) Select(keep func(*Pattern) bool) *Set {
	sub := NewSet()
	for _, p := range s.Patterns {
		if keep(p) {
			sub.add(p)
		}
	}
	return sub
}

// Find finds the sites of the graph where a pattern stands, in the graph's order, and the nodes that looked like one
// but were none. Subgraphs are not entered: they are graphs of their own.
//
// Nodes are tried from the last to the first, so that the largest form of a block is found before its parts; at one node
// the first pattern of the set wins. No node is the root of a match if it is needed inside another match alone, and no value
// is written by two matches.
func (s *Set) Find(g *onnx.Graph, facts *infer.Facts) ([]*Match, []*Miss) {
	f := &finder{view: newGraphView(s, g, facts), claimed: map[*onnx.Node]bool{}, written: map[*onnx.Value]bool{},
		misses: map[*onnx.Node]*missed{}}
	states := map[*Pattern]*state{}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		pats := s.byRoot[n.OpType]
		if len(pats) == 0 || len(n.Outputs) == 0 {
			continue
		}
		for _, out := range n.Outputs {
			if out == nil || f.view.resolve(out) != out || f.inner(n) {
				continue
			}
			for _, p := range pats {
				st := states[p]
				if st == nil {
					st = newState(f.view, p)
					states[p] = st
				}
				if f.try(st, out) {
					break
				}
			}
		}
	}
	slices.Reverse(f.matches)
	return f.matches, f.report(s)
}

type finder struct {
	view    *graphView
	claimed map[*onnx.Node]bool
	written map[*onnx.Value]bool
	matches []*Match
	misses  map[*onnx.Node]*missed // best partial match that holds the anchor node
}

type missed struct {
	pattern *Pattern
	failure
}

// inner says whether the node belongs to a match and nobody outside needs what it makes.
func (f *finder) inner(n *onnx.Node) bool {
	if !f.claimed[n] {
		return false
	}
	for _, v := range n.Outputs {
		if v == nil {
			continue
		}
		if v.IsOutput() || f.written[v] {
			return f.written[v]
		}
		for _, u := range v.Uses() {
			if !f.claimed[u.Node] {
				return false
			}
		}
	}
	return true
}

func (f *finder) try(s *state, root *onnx.Value) bool {
	s.reset()
	var m *Match
	ok := s.match(s.pat.root(), root, func() bool {
		if !s.holdsWhere(root) {
			return false
		}
		m = f.build(s, root)
		return m != nil
	})
	if !ok {
		f.remember(s)
		return false
	}
	for _, n := range m.Nodes {
		f.claimed[n] = true
	}
	for _, v := range m.Outputs {
		f.written[v] = true
	}
	f.matches = append(f.matches, m)
	return true
}

// root is the expression that a match of the pattern starts from: its first result.
func (pat *Pattern) root() expr {
	r := pat.Results[0]
	return &nameExpr{name: r, slot: pat.slots[r], def: pat.stmts[r], output: -1}
}

// build makes the Match of a finished attempt; nil when one of its outputs is written by another match already.
func (f *finder) build(s *state, root *onnx.Value) *Match {
	pat := s.pat
	m := &Match{Pattern: pat.Name, Op: pat.Target.Op, Domain: pat.Target.Domain, Root: root.Producer, Alike: f.view.alike}
	for _, r := range pat.Results {
		v := s.slots[pat.slots[r]].value
		if r != pat.Results[0] {
			v = f.view.resolve(v)
		}
		if v == nil || f.written[v] {
			return nil
		}
		m.Outputs = append(m.Outputs, v)
	}
	for _, a := range pat.Target.Args {
		v := s.slots[pat.slots[a]].value
		if v == nil {
			return nil
		}
		m.Inputs = append(m.Inputs, v)
	}
	for _, a := range pat.Target.attrs {
		x, err := a.expr.eval(s)
		if err != nil {
			return nil
		}
		m.Attributes = append(m.Attributes, attribute(a, x))
	}
	seen := map[*onnx.Node]bool{}
	for _, n := range s.nodes {
		if !seen[n] {
			seen[n] = true
			m.Nodes = append(m.Nodes, n)
		}
	}
	sort.Slice(m.Nodes, func(i, j int) bool { return f.view.position(m.Nodes[i]) < f.view.position(m.Nodes[j]) })
	return m
}

// attribute makes the node's attribute: texts are STRING, numbers from integer expressions INT, the others FLOAT.
func attribute(a targetAttr, x any) *onnx.Attribute {
	switch v := x.(type) {
	case string:
		return onnx.StringAttr(a.name, v)
	case bool:
		if v {
			return onnx.IntAttr(a.name, 1)
		}
		return onnx.IntAttr(a.name, 0)
	case float64:
		if isIntegral(a.expr) {
			return onnx.IntAttr(a.name, int64(v))
		}
		return onnx.FloatAttr(a.name, float32(v))
	}
	return onnx.StringAttr(a.name, fmt.Sprint(x))
}

// isIntegral says whether an expression gives integers whatever it is applied to: functions do, captures may not.
func isIntegral(e condExpr) bool {
	switch e := e.(type) {
	case *condNumber:
		return !e.float
	case *condName:
		return e.isTag
	case *condUnary:
		return isIntegral(e.x)
	case *condBinary:
		return e.op != "/" && isIntegral(e.x) && isIntegral(e.y)
	}
	return true
}

// remember keeps the attempt's best partial match for each anchor node in it.
func (f *finder) remember(s *state) {
	if s.best.depth == 0 {
		return
	}
	for _, n := range s.best.nodes {
		if !slices.Contains(s.pat.Anchors, n.OpType) {
			continue
		}
		if old := f.misses[n]; old == nil || old.depth < s.best.depth {
			f.misses[n] = &missed{s.pat, s.best}
		}
	}
}

// report lists the anchor nodes that no match took, with the best explanation there is.
func (f *finder) report(s *Set) []*Miss {
	anchors := map[string]*Pattern{}
	for _, p := range s.Patterns {
		for _, a := range p.Anchors {
			if anchors[a] == nil {
				anchors[a] = p
			}
		}
	}
	var misses []*Miss
	for _, n := range f.view.g.Nodes {
		if anchors[n.OpType] == nil || f.claimed[n] {
			continue
		}
		m := f.misses[n]
		if m == nil {
			continue // nothing around the node looks like a pattern
		}
		miss := &Miss{Pattern: m.pattern.Name, Anchor: n, Node: n, Expected: m.expected, Found: m.found}
		if m.at != nil && m.at.Producer != nil {
			miss.Node = m.at.Producer
		}
		misses = append(misses, miss)
	}
	return misses
}

func formatAny(x any) string {
	switch v := x.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case *onnx.Value:
		return strconv.Quote(v.Name)
	}
	return fmt.Sprint(x)
}
