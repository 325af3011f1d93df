// Package attention finds blocks of attention by their computation: a product of two computed values, something like a
// softmax of its rows, and a product of the result with a third value.
//
// The package knows no spelling of the steps between the products. It runs them with the built-in evaluator, on scores,
// masks and lengths of its choice: one score among equal ones shows the scale and the cap, equal scores show which
// query sees which key, and random queries, keys and values show the order of heads and rows.
package attention

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Masks tells which masks become the Bias of their site, even if Reading has other fields for them.
type Masks int

// OtherMasks are those that the standard's op has no attributes for: windows, and queries that see no key.
const (
	NoMasks Masks = iota
	OtherMasks
	AllMasks
)

// Find returns the sites of attention in a graph, and the reasons why similar blocks are not attention.
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
	seen   map[*onnx.Node]bool  // second products already read
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
		case f.budget.Spent(): // an unfinished run proves nothing
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
			a, b := r.product.Inputs[0], r.product.Inputs[1]
			if r.op != nil || f.g.IsData(a) && f.g.IsData(b) { // a product with weights is perhaps not attention
				f.miss(n, why)
			}
			break
		}
		f.budget.Found()
		f.sites = append(f.sites, s)
	}
}

// miss records why something that looks like attention is not a site.
func (f *finder) miss(anchor *onnx.Node, why *reason.Reason) {
	f.misses = append(f.misses, &match.Miss{Pattern: fused.AttentionName, Anchor: anchor, Reason: why})
}

// site reads a region. Only one site can write a cache. Other layers that read the same cache, as in Gemma 3n, get the
// keys and values as concatenated for the first.
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

// finished adds its nodes to a site; s may be nil.
func (f *finder) finished(r *region, s *Reading) *Reading {
	if s != nil {
		s.Nodes = nodesOf(f.g, r, s)
	}
	return s
}
