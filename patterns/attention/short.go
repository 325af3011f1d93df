package attention

import (
	"fmt"
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/shorten"
)

// manyFixed is the fixed length above which a block is run with fewer tokens.
const manyFixed = 64

// shortened describes a block whose fixed lengths can be changed.
type shortened struct {
	// named holds the dimensions of the values that tensors are made for.
	named map[*onnx.Value][]shorten.Dim
}

// mayShorten reports whether a block has fixed lengths that are worth shortening. Package shorten decides whether its
// nodes allow it.
func mayShorten(g *match.View, r *region, a arrangement) bool {
	l := newWorld(g, a.lengths)
	_, queries, _ := l.open()
	keys := false
	for _, w := range a.lengths {
		keys = keys || w.keys() != a.lengths[0].keys()
	}
	w := a.lengths[0]
	if (queries || w.queries <= manyFixed) && (keys || w.keys() <= manyFixed) {
		return false
	}
	rank, ok := g.Facts.Rank(r.scores())
	return r.op == nil && ok && rank == len(a.scoreAxes.Fields())
}

func (b *block) shortened() *shortened {
	s := &shortened{named: map[*onnx.Value][]shorten.Dim{}}
	b.world.short = s
	b.world.name(b.scores(), b.scoreAxes, true, b.heads, 0)
	b.world.name(b.weights(), b.weightAxes[0], true, b.heads, 0)
	return s
}

// oneLength reports whether there are as many keys as queries in every world.
func (l *world) oneLength() bool {
	for _, w := range l.worlds {
		if w.past != 0 {
			return false
		}
	}
	return true
}

// name records how the dimensions of a value are composed. Its rows are queries if ofQueries is true, otherwise keys.
func (l *world) name(v *onnx.Value, axes Axes, ofQueries bool, heads, width int) {
	if l.short == nil {
		return
	}
	keys := 'l'
	if l.oneLength() {
		keys = 's'
	}
	w := l.worlds[0]
	factors := map[rune]shorten.Factor{
		'b': {Name: 'b', Size: w.batch}, 'n': {Size: int64(heads)}, 'h': {Size: int64(width)},
		's': {Name: 's', Size: w.queries}, 'l': {Name: keys, Size: w.keys()},
	}
	if !ofQueries {
		factors['s'] = factors['l']
	}
	l.short.named[v] = axes.Dims(factors)
}

// Dims returns the dimensions with these axes, composed of the factors.
func (a Axes) Dims(factors map[rune]shorten.Factor) (dims []shorten.Dim) {
	for _, field := range a.Fields() {
		var list []shorten.Factor
		for _, letter := range field {
			list = append(list, factors[letter])
		}
		dims = append(dims, shorten.Of(list...))
	}
	return dims
}

// at returns the length with the given name.
func (n lengths) at(name rune) int64 {
	switch name {
	case 'b':
		return n.batch
	case 's':
		return n.queries
	}
	return n.keys()
}

// shape returns the shape of a value whose dimensions are named.
func (s *shortened) shape(v *onnx.Value, n lengths) ([]int, bool) {
	if s == nil || s.named[v] == nil {
		return nil, false
	}
	shape := []int{}
	for _, d := range s.named[v] {
		shape = append(shape, int(d.At(n.at)))
	}
	return shape, true
}

// shortened returns env with the graph's constant shapes replaced by shapes for these lengths.
func (l *world) shortened(p *probe.Plan, n lengths, env values) (values, error) {
	given := map[*onnx.Value][]shorten.Dim{}
	for v := range env {
		if dims, ok := l.short.named[v]; ok {
			given[v] = dims
		}
	}
	region, err := shorten.Read(p.Nodes, given, l.View.Facts.Opset(), func(v *onnx.Value) ([]int64, error) {
		if shape, ok := l.View.Facts.Shape(v, 0); ok {
			return shape, nil
		}
		return nil, fmt.Errorf("the shape of %q is not known", v.Name)
	})
	if err != nil {
		return nil, err
	}
	for _, v := range p.Want { // in the form that the next run gets them
		if dims, ok := region.Thin(v); ok {
			l.short.named[v] = dims
		}
	}
	whole := region.Inputs(n.at)
	maps.Copy(whole, env)
	return whole, nil
}
