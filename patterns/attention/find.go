// Package attention finds blocks of attention by what they compute: a product of two computed values, of whose rows
// something like a softmax is taken, and a product of that with a third one.
//
// No spelling of the steps between is known here. They are run, by the built-in evaluator, on scores, masks and lengths
// of our choice: what becomes of one score tells the scale and the cap, what becomes of equal ones tells who sees whom,
// and random queries, keys and values tell in which order their heads and rows stand.
package attention

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Masks says which masks are the Bias of their site, of those that a model adds to the scores and Reading has other
// fields for.
type Masks int

// The choices: none, those that the standard's op has no attributes for (of a window, or for queries that see no key),
// and all.
const (
	NoMasks Masks = iota
	OtherMasks
	AllMasks
)

// Find finds the blocks of a graph.
func Find(g *match.View, added Masks) (sites []*site.Site, misses []*match.Miss) {
	f := &finder{g: g, budget: budgetOf(g), read: probe.Readings[Reading]{}, way: way{asBias: added},
		seen: map[*onnx.Node]bool{}, caches: map[*onnx.Value]bool{}}
	for _, n := range g.Graph.Nodes {
		f.at(n)
	}
	f.budget.End()
	for _, s := range f.sites {
		sites = append(sites, s.site(g))
	}
	return sites, f.misses
}

// finder is one run of Find.
type finder struct {
	g      *match.View
	budget *match.Budget
	read   probe.Readings[Reading]
	way    way
	seen   map[*onnx.Node]bool  // the second products of the blocks that were looked at
	caches map[*onnx.Value]bool // the presents that sites write
	sites  []*Reading
	misses []*match.Miss
}

// at looks for blocks around a node.
func (f *finder) at(n *onnx.Node) {
	if isGroupQuery(n) {
		f.budget.Begin(n)
		s, why := readGroupQuery(f.g, n)
		switch {
		case f.budget.Spent(): // what was not run to the end says nothing
		case why != nil:
			f.miss(n, why)
		case s != nil:
			f.sites = append(f.sites, s)
		}
		return
	}
	if !isAnchor(n) || n.Input(0) == nil || n.OutputValue(0) == nil {
		return
	}
	f.budget.Begin(n)
	regions, why := readRegions(f.g, n)
	for _, r := range regions {
		if f.seen[r.sum] {
			continue
		}
		f.seen[r.sum] = true
		var s *Reading
		if why == nil {
			s, why = f.site(r)
		}
		if f.budget.Spent() {
			break
		}
		if why != nil {
			f.miss(n, why)
			break
		}
		f.budget.Found()
		f.sites = append(f.sites, s)
	}
}

// miss notes why something that looks like attention is no site.
func (f *finder) miss(anchor *onnx.Node, why *reason.Reason) {
	f.misses = append(f.misses, &match.Miss{Pattern: "Attention", Anchor: anchor, Reason: why})
}

// site reads a region. One site alone can write a cache: other layers that read it, as those of Gemma 3n do, get keys
// and values as they were joined for the first one.
func (f *finder) site(r *region) (*Reading, *reason.Reason) {
	s, why := f.of(r, f.way)
	if why != nil || s.PresentKey == nil || r.op != nil {
		return f.finished(r, s), why
	}
	joined := f.way
	joined.joined = true
	if f.caches[s.PresentKey] || f.caches[s.PresentValue] {
		s, why = f.of(r, joined)
		return f.finished(r, s), why
	}
	f.caches[s.PresentKey], f.caches[s.PresentValue] = true, true
	s.smaller = func() *Reading {
		f.budget.Begin(r.anchor)
		smaller, _ := f.of(r, joined)
		return f.finished(r, smaller)
	}
	return f.finished(r, s), nil
}

// finished adds the nodes of a site that was read, if one was.
func (f *finder) finished(r *region, s *Reading) *Reading {
	if s != nil {
		s.Nodes = nodesOf(f.g, r, s)
	}
	return s
}
