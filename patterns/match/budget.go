package match

import (
	"cmp"
	"errors"
	"hash/maphash"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Budget bounds the work of one search in all graphs of a model, so that it grows with the number of places that are
// searched, and not with what stands around them. Work is counted in steps of about 15 nanoseconds.
//
// Every place has a few steps of its own, and more if something was found at a place of its kind, until many
// places of the kind are given up one after the other. It may take more from a reserve, which all places share: no
// kind of place gets more than a share of the reserve, and no place more than a share of what remains of it. So a
// graph full of places that lead nowhere costs little, and a block among them is still found. Places are of one
// kind if the ops around them are the same.
type Budget struct {
	search string
	Limits
	reserve  int            // steps that are left of it
	drawn    map[uint64]int // from the reserve, by kind of place
	fruitful map[uint64]int // how many more places may be given up, of the kinds where something was found

	view  *View
	place *onnx.Node
	kind  uint64
	own   int // steps of the place's own
	given int // with those of the reserve
	left  int // of them

	taken *int // steps of all searches in the model

	gaveUp []*onnx.Node // places in view that were given up
}

// afterFound is how many times as many steps a place has of its own where others of its kind have led to something.
const afterFound = 8

// patience is how many places of a kind may be given up, one after the other, before they have few steps again.
const patience = 64

// budgetKey names a budget: of a search in a model for the patterns of an index.
type budgetKey struct {
	index  *Index
	search string
}

// Limits are the size of a budget.
type Limits struct {
	Each    int // steps that each place has
	Reserve int // steps that all places share
	Shares  int // of the reserve, of which a kind of place may take one
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

// StepsTaken returns how many steps all searches in a model took.
func StepsTaken(f *infer.Facts) int { return *stepsOf(f) }

// Begin begins the search at a place.
func (b *Budget) Begin(n *onnx.Node) {
	b.End()
	b.place, b.kind = n, kindOf(n)
	if b.own = b.Each; b.fruitful[b.kind] > 0 {
		b.own *= afterFound
	}
	b.given = b.own + max(0, min(b.Reserve/b.Shares-b.drawn[b.kind], b.reserve/b.Shares))
	b.left = b.given
}

// End ends the search at a place: what was spent there is taken from the reserve.
func (b *Budget) End() {
	if more := b.given - max(b.left, 0) - b.own; b.place != nil && more > 0 {
		b.reserve -= more
		b.drawn[b.kind] += more
	}
	if b.Spent() && b.fruitful[b.kind] > 0 {
		b.fruitful[b.kind]--
	}
	b.place = nil
}

// Spend takes steps; it reports whether the search may go on at this place. Between places nothing is counted.
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

// SpendOrFail is Spend with an error for false.
func (b *Budget) SpendOrFail(steps int) error {
	if !b.Spend(steps) {
		return errSpent
	}
	return nil
}

var errSpent = errors.New("the search has no steps left for this place")

// Found says that the search has found something at the place.
func (b *Budget) Found() { b.fruitful[b.kind] = patience }

// Spent reports whether the place has no steps left.
func (b *Budget) Spent() bool { return b.place != nil && b.left <= 0 }

// GaveUp is a search that was not brought to an end at some places of a graph.
type GaveUp struct {
	Search string
	Places []*onnx.Node
}

// GaveUp lists the searches of the graph that were given up somewhere.
func (g *View) GaveUp() (list []GaveUp) {
	for _, b := range g.budgets {
		if b.view == g && len(b.gaveUp) > 0 {
			list = append(list, GaveUp{b.search, b.gaveUp})
		}
	}
	return list
}

const (
	kindHops   = 2 // around a place that its kind is told by
	kindFanOut = 4 // nodes at each hop
)

var kindSeed = maphash.MakeSeed()

// kindOf returns a number that is the same for nodes with the same ops around them.
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
