package patterns

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/rotary"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Pattern is a pattern: its text, or the name and the op of one written in Go.
type Pattern = notation.Pattern

// A Set is a list of patterns, tried in order at every node.
type Set struct {
	Patterns []*Pattern // in the order they are tried at a node
	scope    *notation.Scope
	index    *match.Index
	forms    map[*Pattern]*form // of the patterns without text
	texts    []string           // of the added files
	added    attention.Masks    // the masks that become the bias of attention
}

// NewSet returns an empty set.
func NewSet() *Set {
	return &Set{scope: builtinLanguage.Scope(), index: match.NewIndex(builtinLanguage), forms: map[*Pattern]*form{}}
}

// Add parses the text of a pattern file and appends its patterns. Errors are of type *Error, with line and column.
func (s *Set) Add(file, src string) error {
	pats, err := s.scope.Parse(file, src)
	if err != nil {
		return err
	}
	s.texts = append(s.texts, src)
	for _, p := range pats {
		s.Patterns = append(s.Patterns, p)
		if err := s.index.Add(p); err != nil {
			return err
		}
	}
	return nil
}

// Digest identifies a set by its patterns: it is the SHA-256 of their texts, or names if they have no text.
func (s *Set) Digest() string {
	h := sha256.New()
	for _, text := range s.texts {
		fmt.Fprintf(h, "%d\n%s", len(text), text)
	}
	for _, p := range s.Patterns {
		fmt.Fprintln(h, p.Name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// addFrom adds a pattern of another set.
func (s *Set) addFrom(o *Set, p *Pattern) {
	s.Patterns = append(s.Patterns, p)
	if form := o.forms[p]; form != nil {
		s.forms[p] = form
	} else if err := s.index.Add(p); err != nil {
		panic(err) // it was valid in the other set
	}
}

// addForm adds a pattern without text.
func (s *Set) addForm(d *form) {
	p := d.pattern()
	s.Patterns = append(s.Patterns, p)
	s.forms[p] = d
}

// has reports whether the set has the form.
func (s *Set) has(d *form) bool {
	return slices.ContainsFunc(s.Patterns, func(p *Pattern) bool { return s.forms[p] == d })
}

// WithAddedMasks returns the set whose Attention sites use masks that the model adds to the scores as their bias: all
// of them, or those that the standard's op has no attributes for.
func (s *Set) WithAddedMasks(all bool) *Set {
	changed := s.Select(func(*Pattern) bool { return true })
	if changed.added = attention.OtherMasks; all {
		changed.added = attention.AllMasks
	}
	return changed
}

// Select returns the set of the patterns for which keep returns true.
func (s *Set) Select(keep func(*Pattern) bool) *Set {
	sub := NewSet()
	sub.scope, sub.texts, sub.added = s.scope, s.texts, s.added
	for _, p := range s.Patterns {
		if keep(p) {
			sub.addFrom(s, p)
		}
	}
	return sub
}

// Find returns the matches in a graph, in the graph's order, and the nodes that looked like one but are not. It does
// not enter subgraphs.
//
// Find tries nodes from the last to the first, so that the largest form of a block is found before its parts. At a
// node, the first pattern of the set wins. A node that only another match needs is not the root of a match, and no two
// matches write the same value.
func (s *Set) Find(g *onnx.Graph, facts *infer.Facts) ([]*Match, []*match.Miss) {
	f := &finder{set: s, view: s.View(g, facts), claimed: map[*onnx.Node]bool{}, written: map[*onnx.Value]bool{},
		functions: map[string]*onnx.Function{}}
	for _, step := range search {
		if step.form == nil || s.has(step.form) {
			step.find(f)
		}
	}
	slices.SortStableFunc(f.matches, func(a, b *Match) int { return f.view.Position(a.Root) - f.view.Position(b.Root) })
	misses := f.view.NearMisses(s.index, func(n *onnx.Node) bool { return f.claimed[n] })
	f.noteFits(misses)
	f.noteGivenUp()
	return f.matches, append(misses, f.notes...)
}

// texts finds the matches of the text patterns.
func (f *finder) texts() {
	nodes := f.view.Graph.Nodes
	states := map[*Pattern]*match.Attempt{}
search:
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		pats := f.set.index.At(n)
		if len(pats) == 0 || len(n.Outputs) == 0 {
			continue
		}
		for _, out := range n.Outputs {
			if out == nil || f.view.Resolve(out) != out || f.inner(n) || f.castOfShared(n) {
				continue
			}
			for _, p := range pats {
				if f.steps > maxSteps+len(nodes)*nodeSteps {
					f.note(p.Name, n, reason.New(reason.Limit, n, "the search for patterns stopped here after "+
						"%d steps: the patterns of --patterns can match in too many ways", f.steps))
					break search
				}
				st := states[p]
				if st == nil {
					st = match.NewAttempt(f.view, p)
					states[p] = st
				}
				found := f.try(st, out)
				if f.steps += 1 + st.Steps() + len(st.Slots)/16; found {
					break
				}
			}
		}
	}
}

// noteGivenUp records each search that was given up somewhere.
func (f *finder) noteGivenUp() {
	for _, s := range f.view.GaveUp() {
		at, more := s.Places[0], ""
		if n := len(s.Places) - 1; n > 0 {
			more = " and at " + english.Counted(n, "other place")
		}
		f.note(s.Search, at, reason.New(reason.Limit, at,
			"the search stopped here%s: it reached the limit of steps for one place and may miss a block",
			more).With("places", len(s.Places)))
	}
}

// View returns the graph as the set's patterns see it.
func (s *Set) View(g *onnx.Graph, facts *infer.Facts) *match.View {
	return match.New(g, facts, s.index)
}

// Condition parses a single condition, such as one to add to a pattern. It returns an error if the text is invalid.
func (s *Set) Condition(text string) (notation.Condition, error) { return s.scope.Condition(text) }

// Bounds on the steps of all attempts in a graph: a constant, plus steps for each node. The built-in patterns take at
// most some hundred per node.
const (
	maxSteps  = 1 << 24
	nodeSteps = 1000
)

type finder struct {
	set     *Set
	view    *match.View
	claimed map[*onnx.Node]bool
	written map[*onnx.Value]bool
	matches []*Match
	notes   []*match.Miss        // of patterns in Go
	near    []*match.Miss        // of fitted ops
	shared  map[*onnx.Value]bool // memo of castOfShared
	steps   int                  // of all attempts
	// functions are the definitions that replacements call, by name and overload.
	functions map[string]*onnx.Function
}

// repeats implements Repeats of the matches.
func (f *finder) repeats(v *onnx.Value, neighbors bool) bool {
	return rotary.Repeats(f.view, v, neighbors)
}

// inner reports whether the node belongs to a match and no outside node needs its results.
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
		if !f.within(v) {
			return false
		}
	}
	return true
}

// within reports whether only nodes of matches read v, directly or through nodes that pass it on, and other nodes read
// only its shape for them.
func (f *finder) within(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		n := u.Node
		switch {
		case f.claimed[n]:
		case n.Is("Shape"):
			if !f.feedsMatches(n, maxShapeSteps, map[*onnx.Node]int{}) {
				return false
			}
		case len(n.Outputs) != 1 || n.Outputs[0].IsOutput() || f.view.Resolve(n.Outputs[0]) != f.view.Resolve(v) ||
			!f.within(n.Outputs[0]):
			return false
		}
	}
	return true
}

// maxShapeSteps bounds the nodes between a Shape and the Reshape that uses it.
const maxShapeSteps = 8

// feedsMatches reports whether only nodes of matches need n's results, as the Reshapes of a block need the shape of a
// value inside it. tried holds the visited nodes and their remaining steps.
func (f *finder) feedsMatches(n *onnx.Node, steps int, tried map[*onnx.Node]int) bool {
	if steps == 0 || len(n.Subgraphs()) > 0 {
		return false
	}
	if tried[n] >= steps { // otherwise the search would have ended
		return true
	}
	tried[n] = steps
	for _, v := range n.Outputs {
		if v == nil {
			continue
		}
		if v.IsOutput() || f.written[v] {
			return false
		}
		for _, u := range v.Uses() {
			if !f.claimed[u.Node] && !f.feedsMatches(u.Node, steps-1, tried) {
				return false
			}
		}
	}
	return true
}

// castOfShared reports whether n is a cast of a value that other nodes also read. Such a cast does not end a block: the
// value must be computed anyway, and is the block's result.
func (f *finder) castOfShared(n *onnx.Node) bool {
	if !n.Is("Cast") || n.Input(0) == nil {
		return false
	}
	v := n.Input(0)
	shared, ok := f.shared[v]
	if !ok {
		shared = v.IsOutput() || slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return !u.Node.Is("Cast") })
		if f.shared == nil {
			f.shared = map[*onnx.Value]bool{}
		}
		f.shared[v] = shared
	}
	return shared
}

func (f *finder) try(s *match.Attempt, root *onnx.Value) bool {
	var m *Match
	if !s.At(root, func() bool { m = f.build(s, root); return m != nil }) {
		return false
	}
	f.take(m)
	return true
}
