package patterns

import (
	"fmt"
	"slices"
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

	definitions map[string]*definition
}

// NewSet makes an empty set.
func NewSet() *Set {
	return &Set{views: map[string]*view{}, byRoot: map[string][]*Pattern{}, definitions: map[string]*definition{}}
}

// Add parses the text of a pattern file and appends its patterns. Errors are of type *Error, with line and column.
func (s *Set) Add(file, src string) error {
	pats, err := parse(file, src, s.views, s.definitions)
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

// Select returns the set of the patterns that keep says yes to.
func (s *Set) Select(keep func(*Pattern) bool) *Set {
	sub := NewSet()
	sub.views, sub.definitions = s.views, s.definitions
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
		functions: map[string]*onnx.Function{}}
	f.findForms(s, false)
	states := map[*Pattern]*state{}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		pats := s.byRoot[n.OpType]
		if len(pats) == 0 || len(n.Outputs) == 0 {
			continue
		}
		for _, out := range n.Outputs {
			if out == nil || f.view.resolve(out) != out || f.inner(n) || f.castOfShared(n) {
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
	f.findForms(s, true)
	slices.SortStableFunc(f.matches, func(a, b *Match) int { return f.view.position(a.Root) - f.view.position(b.Root) })
	return f.matches, append(f.report(s), f.notes...)
}

type finder struct {
	view    *graphView
	claimed map[*onnx.Node]bool
	written map[*onnx.Value]bool
	matches []*Match
	notes   []*Miss // of Go patterns
	// functions are the definitions that replacements call, by name and overload.
	functions map[string]*onnx.Function
}

// inner reports whether the node belongs to a match and nobody outside needs what it makes.
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

// castOfShared reports whether n is a cast of a value that others read as well. Such a cast ends no block: the value has to be
// computed anyway, and is the block's result.
func (f *finder) castOfShared(n *onnx.Node) bool {
	if !n.Is("Cast") || n.Input(0) == nil {
		return false
	}
	v := n.Input(0)
	for _, u := range v.Uses() {
		if u.Node != n && !u.Node.Is("Cast") {
			return true
		}
	}
	return v.IsOutput()
}

func (f *finder) try(s *state, root *onnx.Value) bool {
	s.reset()
	var m *Match
	ok := s.match(s.pat.root(), root, func() bool {
		if !s.holdsWhere() {
			return false
		}
		m = f.build(s, root)
		return m != nil
	})
	if !ok {
		return false
	}
	f.take(m)
	return true
}

// root is the expression that a match of the pattern starts from: its first result.
func (pat *Pattern) root() expr {
	r := pat.Results[0]
	return &nameExpr{name: r, slot: pat.slots[r], def: pat.stmts[r], output: -1}
}

func formatAny(x any) string {
	switch v := x.(type) {
	case float64:
		if float64(float32(v)) == v { // as the graph's float32 is written
			return strconv.FormatFloat(v, 'g', -1, 32)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case *onnx.Value:
		return strconv.Quote(v.Name)
	}
	return fmt.Sprint(x)
}
