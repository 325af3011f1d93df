package attention

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// lengths are the sizes that a block of attention leaves open.
type lengths struct{ batch, queries, past int64 }

func (n lengths) keys() int64 { return n.past + n.queries }

// world knows the shapes of a graph's values at chosen lengths, and runs its nodes at them. The worlds of shape
// inference show how each dimension is composed, so nodes may read the shapes of values that are not computed.
type world struct {
	*probe.Lab
	worlds [infer.Worlds]lengths // of the block
	unit   int64                 // divides every batch, such as the windows of an image
	short  *shortened            // set if fixed lengths can be chosen too
}

const (
	// maxRunNodes bounds the nodes that are evaluated in a run, maxRunElements the elements of a tensor.
	maxRunNodes    = 1024
	maxRunElements = 1 << 24
	// Costs in steps: to look at a node or value, and to write the form of one.
	lookSteps  = 4
	writeSteps = 32
)

// limits bound the search. A block of 128 heads takes some 64 million steps, and the layers of a model may have
// blocks of two forms.
var limits = match.Limits{Each: 1 << 11, Reserve: 1 << 27, Shares: 2}

func budgetOf(g *match.View) *match.Budget { return g.Budget(fused.AttentionName, limits) }

func newWorld(g *match.View, worlds [infer.Worlds]lengths) *world {
	return &world{Lab: probe.NewLab(g, maxRunNodes, budgetOf(g)), worlds: worlds}
}

// open reports which lengths can be chosen: the others are fixed numbers in the graph.
func (l *world) open() (batch, queries, past bool) {
	for _, w := range l.worlds[1:] {
		batch = batch || w.batch != l.worlds[0].batch
		queries = queries || w.queries != l.worlds[0].queries
		past = past || w.past != l.worlds[0].past
	}
	return batch, queries, past
}

// at returns n with fixed lengths restored.
func (l *world) at(n lengths) lengths {
	batch, queries, past := l.open()
	unit := l.batchUnit()
	switch {
	case !batch:
		n.batch = l.worlds[0].batch
	case unit > 1:
		n.batch = unit
	}
	if l.short != nil {
		if l.oneLength() {
			n.past = 0
		}
		return n
	}
	if !queries {
		n.queries = l.worlds[0].queries
	}
	keys := false // the number of keys is open as well
	for _, w := range l.worlds[1:] {
		keys = keys || w.keys() != l.worlds[0].keys()
	}
	switch {
	case !past:
		n.past = l.worlds[0].past
	case !keys:
		n.past = l.worlds[0].keys() - n.queries
	}
	return n
}

// batchUnit returns the greatest number that divides the batch in all worlds.
func (l *world) batchUnit() int64 {
	for _, w := range l.worlds {
		a, b := l.unit, w.batch
		for b != 0 {
			a, b = b, a%b
		}
		l.unit = a
	}
	return max(l.unit, 1)
}

// terms are the parts of dimensions: a dimension is a number times one of them.
var terms = []struct {
	of  func(lengths) int64
	sum func(batch, queries, past *formula.Sum) *formula.Sum
}{
	{func(lengths) int64 { return 1 }, func(_, _, _ *formula.Sum) *formula.Sum { return formula.Number(1) }},
	{func(n lengths) int64 { return n.batch }, func(b, _, _ *formula.Sum) *formula.Sum { return b }},
	{func(n lengths) int64 { return n.queries }, func(_, s, _ *formula.Sum) *formula.Sum { return s }},
	{func(n lengths) int64 { return n.past }, func(_, _, p *formula.Sum) *formula.Sum { return p }},
	{lengths.keys, func(_, s, p *formula.Sum) *formula.Sum { return s.Plus(p) }},
	{func(n lengths) int64 { return n.batch * n.queries },
		func(b, s, _ *formula.Sum) *formula.Sum { return formula.Product(b, s) }},
	{func(n lengths) int64 { return n.batch * n.keys() },
		func(b, s, p *formula.Sum) *formula.Sum { return formula.Product(b, s.Plus(p)) }},
	{func(n lengths) int64 { return n.queries * n.keys() },
		func(_, s, p *formula.Sum) *formula.Sum { return formula.Product(s, s.Plus(p)) }},
	{func(n lengths) int64 { return n.batch * n.queries * n.keys() },
		func(b, s, p *formula.Sum) *formula.Sum { return formula.Product(formula.Product(b, s), s.Plus(p)) }},
}

// dimension describes a dimension: factor times a term, over divisor, plus more.
type dimension struct {
	factor, divisor, more int64
	term                  int
}

// read finds how a dimension is composed from its sizes in the worlds; ok is false if they do not tell.
func (l *world) read(dim [infer.Worlds]int64) (d dimension, ok bool) {
	for i, term := range terms {
		if k, ok := l.factor(dim, term.of); ok {
			return dimension{factor: k, divisor: 1, term: i}, true
		}
	}
	if unit := l.batchUnit(); unit > 1 {
		if k, ok := l.factor(dim, func(n lengths) int64 { return n.batch / unit }); ok {
			return dimension{factor: k, divisor: unit, term: 1}, true
		}
	}
	for i, term := range terms[2:5] { // a length plus a number, such as a column for a sink
		more := dim[0] - term.of(l.worlds[0])
		same := dim[0] >= 0
		for w := range infer.Worlds {
			same = same && dim[w]-term.of(l.worlds[w]) == more
		}
		if same {
			return dimension{factor: 1, divisor: 1, more: more, term: 2 + i}, true
		}
	}
	return dimension{}, false
}

// size returns a dimension at the lengths; ok is false if the worlds do not tell how it is composed.
func (l *world) size(dim [infer.Worlds]int64, n lengths) (size int64, ok bool) {
	d, ok := l.read(dim)
	if !ok {
		return 0, false
	}
	size = d.factor*terms[d.term].of(n)/d.divisor + d.more
	return size, size >= 0
}

func (l *world) factor(dim [infer.Worlds]int64, term func(lengths) int64) (k int64, ok bool) {
	for w := range infer.Worlds {
		t := term(l.worlds[w])
		if t <= 0 || dim[w] < 0 || dim[w]%t != 0 || w > 0 && dim[w]/t != k {
			return 0, false
		}
		k = dim[w] / t
	}
	return k, true
}

// shape returns the shape of a value at the lengths.
func (l *world) shape(v *onnx.Value, n lengths) ([]int, bool) {
	if shape, ok := l.short.shape(v, n); ok {
		return shape, true
	}
	rank, ok := l.View.Facts.Rank(v)
	shape, known := l.dims(v, n, 0, rank)
	return shape, ok && known
}

// dims returns some dimensions of a value at the lengths.
func (l *world) dims(v *onnx.Value, n lengths, from, to int) (shape []int, ok bool) {
	shape, ok = []int{}, true
	for axis := from; axis < to; axis++ {
		var dim [infer.Worlds]int64
		for w := range dim {
			dim[w] = l.View.Facts.Size(v, w, axis)
		}
		d, known := l.size(dim, n)
		shape, ok = append(shape, int(d)), ok && known
	}
	return shape, ok
}

// values holds a tensor for each value of the graph.
type values = probe.Values

// run evaluates the wanted values from the given ones.
func (l *world) run(n lengths, given values, want ...*onnx.Value) ([]*reference.Tensor, error) {
	known := func(v *onnx.Value) (*reference.Tensor, error) { return l.shapeOf(v, n), nil }
	p, err := l.Plan(given, known, want...)
	switch {
	case err != nil:
		return nil, err
	case l.short != nil:
		if given, err = l.shortened(p, n, given); err != nil {
			return nil, err
		}
		return l.Run(given, known, want...)
	}
	for _, node := range p.Nodes {
		if err := l.fits(node, n); err != nil {
			return nil, err
		}
	}
	return p.Run(given)
}

// fits returns an error if a node makes a tensor that is too large.
func (l *world) fits(node *onnx.Node, n lengths) error {
	for _, v := range node.Outputs {
		if shape, ok := l.shape(v, n); v != nil && ok && match.Elements(shape) > maxRunElements {
			return fmt.Errorf("%q has more than %d elements", v.Name, maxRunElements)
		}
	}
	return nil
}

// shapeOf returns the result of a Shape node at the lengths, nil if it is unknown or v is another value.
func (l *world) shapeOf(v *onnx.Value, lengths lengths) *reference.Tensor {
	n := v.Producer
	if n == nil || n.Graph != l.View.Graph || !n.Is("Shape") {
		return nil
	}
	rank, ok := l.View.Facts.Rank(n.Input(0))
	if !ok {
		return nil
	}
	from, to := reference.ShapeRange(n.AttrInt("start", 0), n.AttrInt("end", int64(rank)), int64(rank))
	dims, ok := l.dims(n.Input(0), lengths, int(from), int(to))
	if !ok {
		return nil
	}
	list := make([]int64, len(dims))
	for i, d := range dims {
		list[i] = int64(d)
	}
	return reference.NewInts(onnx.Int64, []int{len(list)}, list)
}
