package match

import (
	"cmp"
	"errors"
	"hash/maphash"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A Budget bounds the work of one search in all graphs of a model, so that the work grows with the number of places
// searched and not with the nodes around them. Work is counted in steps of about 15 nanoseconds.
//
// Every place has a few steps. It has more if the search found something at a place of the same kind, until many such
// places in a row are given up. A place may also draw from a reserve that all places share: each kind of place gets at
// most a share of the reserve, and each place at most a share of the rest. A place where the search finds something
// draws nothing. So a graph full of fruitless places costs little, a block among them is still found, and so is the
// block of every layer. Places are of one kind if the ops around them are the same.
type Budget struct {
	search string
	Limits
	reserve  int            // steps left in the reserve
	drawn    map[uint64]int // drawn from the reserve, by kind of place
	fruitful map[uint64]int // places that may still be given up, by kind of place where something was found

	view  *View
	place *onnx.Node
	kind  uint64
	own   int // steps that the place has itself
	given int // own steps and those from the reserve
	left  int // of given
	found bool

	taken *int // steps of all searches in the model

	gaveUp []*onnx.Node // the places in view that were given up
}

// afterFound multiplies the steps of a place after the search found something at another place of its kind.
const afterFound = 8

// patience is the number of places of a kind that may be given up in a row before they have few steps again.
const patience = 64

// budgetKey identifies the budget of one search in a model for the patterns of an index.
type budgetKey struct {
	index  *Index
	search string
}

// Limits holds the size of a budget.
type Limits struct {
	Each    int // steps of each place
	Reserve int // steps that all places share
	Shares  int // a kind of place may take one of this many shares of the reserve
}

// Budget returns the budget of a search in the model that the graph belongs to.
func (g *View) Budget(search string, l Limits) *Budget {
	b := g.Facts.Memo(budgetKey{g.index, search}, func() any {
		return &Budget{search: search, Limits: l, reserve: l.Reserve, drawn: map[uint64]int{},
			fruitful: map[uint64]int{}, taken: stepsOf(g.Facts)}
	}).(*Budget)
	if b.view != g {
		b.view, b.gaveUp = g, nil
		g.budgets = append(g.budgets, b)
	}
	return b
}

type stepsKey struct{}

func stepsOf(f *infer.Facts) *int { return f.Memo(stepsKey{}, func() any { return new(int) }).(*int) }

// StepsTaken returns the number of steps that all searches in a model took.
func StepsTaken(f *infer.Facts) int { return *stepsOf(f) }

// Begin begins the search at a place.
func (b *Budget) Begin(n *onnx.Node) {
	b.End()
	b.place, b.kind, b.found = n, kindOf(n), false
	if b.own = b.Each; b.fruitful[b.kind] > 0 {
		b.own *= afterFound
	}
	b.given = b.own + max(0, min(b.Reserve/b.Shares-b.drawn[b.kind], b.reserve/b.Shares))
	b.left = b.given
}

// End ends the search at a place and takes the steps above its own from the reserve.
func (b *Budget) End() {
	if more := b.given - max(b.left, 0) - b.own; b.place != nil && more > 0 && !b.found {
		b.reserve -= more
		b.drawn[b.kind] += more
	}
	if b.Spent() && b.fruitful[b.kind] > 0 {
		b.fruitful[b.kind]--
	}
	b.place = nil
}

// Spend takes steps and reports whether the search may continue at this place. Between places it counts nothing.
func (b *Budget) Spend(steps int) bool {
	switch {
	case b.place == nil:
		return true
	case b.left <= 0:
		return false
	}
	*b.taken += steps
	if b.left -= steps; b.left <= 0 && (len(b.gaveUp) == 0 || b.gaveUp[len(b.gaveUp)-1] != b.place) {
		b.gaveUp = append(b.gaveUp, b.place)
	}
	return b.left > 0
}

// SpendOrFail is Spend with an error instead of false.
func (b *Budget) SpendOrFail(steps int) error {
	if !b.Spend(steps) {
		return errSpent
	}
	return nil
}

var errSpent = errors.New("the search stopped at its limit of steps for this place")

// Found records that the search found something at the place.
func (b *Budget) Found() { b.fruitful[b.kind], b.found = patience, true }

// Spent reports whether the place has no steps left.
func (b *Budget) Spent() bool { return b.place != nil && b.left <= 0 }

// GaveUp is a search that was given up at some places of a graph.
type GaveUp struct {
	Search string
	Places []*onnx.Node
}

// GaveUp lists the searches that were given up somewhere in the graph.
func (g *View) GaveUp() (list []GaveUp) {
	for _, b := range g.budgets {
		if b.view == g && len(b.gaveUp) > 0 {
			list = append(list, GaveUp{b.search, b.gaveUp})
		}
	}
	return list
}

const (
	kindHops   = 2 // around a place, to tell its kind
	kindFanOut = 4 // nodes at each hop
)

var kindSeed = maphash.MakeSeed()

// kindOf returns a number that is equal for nodes with the same ops around them.
func kindOf(n *onnx.Node) uint64 {
	var h maphash.Hash
	h.SetSeed(kindSeed)
	var before, after func(n *onnx.Node, hops int)
	if n == nil {
		return 0
	}
	before = func(n *onnx.Node, hops int) {
		h.WriteString(n.OpType)
		for _, v := range n.Inputs[:min(len(n.Inputs), kindFanOut)] {
			h.WriteByte('<')
			if p := Producer(v); p != nil && hops > 0 {
				before(p, hops-1)
			}
		}
	}
	after = func(n *onnx.Node, hops int) {
		h.WriteString(n.OpType)
		v := cmp.Or(n.OutputValue(0), &onnx.Value{})
		for _, u := range v.Uses()[:min(len(v.Uses()), kindFanOut)] {
			h.WriteByte('>')
			if hops > 0 {
				after(u.Node, hops-1)
			}
		}
	}
	before(n, kindHops)
	after(n, kindHops)
	return h.Sum64()
}
