package dims

import (
	"errors"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// longestChain bounds the constants of a chain, chainTrials the trials to find one. After each search that finds none,
// the next one at that node takes half as many, at least fewTrials.
const (
	longestChain = 8
	chainTrials  = 1500
	fewTrials    = 100
)

// chains lists options of several constants with which the model runs beyond a failed node, if no single one does. A
// mask that was computed at the old size throughout is an example: as soon as the positions at its start follow, the
// Expand at its end fails, and that must follow too. So a chain starts with a constant that moves the failure to a node
// before the failed one, and goes on with those that mend it there.
func (s *search) chains(r *reading, failed outcome) ([]option, error) {
	behind := map[*onnx.Node]bool{}
	for _, layer := range s.behind(failed.node) {
		for _, n := range layer {
			behind[n] = true
		}
	}
	most := min(max(chainTrials>>s.dead[failed.node], fewTrials), s.left)
	stop := s.left - most
	var mend func(r *reading, at outcome, set map[slot]rat, depth int) (option, error)
	mend = func(r *reading, at outcome, set map[slot]rat, depth int) (option, error) {
		var later, aside []func() (option, error)
		for _, o := range append(s.traced(r, at), s.candidates(r, at)...) {
			if s.left <= stop {
				return option{}, nil
			}
			if o.whole() == 0 || o.how > 2 && !o.within(at.node) {
				continue
			}
			with, all := s.taking(r, o), maps.Clone(o.set)
			maps.Copy(all, set)
			x := s.try(with, s.size)
			switch {
			case errors.Is(x.err, errSteps):
				return option{}, x.err
			case x.err == nil || x.at > failed.at || x.node == failed.node && x.apart < failed.apart:
				if len(set) > 0 { // a single one was tried before
					return option{set: all, how: 2, chained: true}, nil
				}
				if x.node == failed.node {
					return option{set: all, how: o.how, chained: true}, nil
				}
			case x.node == nil || depth == longestChain:
			case depth == 1 && x.at < failed.at || depth > 1 && x.at < failed.at && x.further(at):
				next := func() (option, error) { return mend(with, x, all, depth+1) }
				if depth == 1 && !behind[x.node] { // as if another mask counts by the same positions
					aside = append(aside, next)
				} else {
					later = append(later, next)
				}
			}
		}
		for _, next := range append(later, aside...) {
			if o, err := next(); err != nil || o.set != nil {
				return o, err
			}
		}
		return option{}, nil
	}
	o, err := mend(r, failed, nil, 1)
	if err != nil || o.set == nil {
		s.dead[failed.node]++
		return nil, err
	}
	return []option{o}, nil
}

// within reports whether an option only changes inputs of a node.
func (o option) within(n *onnx.Node) bool {
	for at := range o.set {
		if at.node != n {
			return false
		}
	}
	return true
}

// further reports whether a trial failed later than another one, or at fewer axes.
func (x outcome) further(y outcome) bool { return x.at > y.at || x.at == y.at && x.apart < y.apart }

// apart counts the axes along which the operands of an elementwise op or an Expand do not broadcast.
func apart(operands [][]int) (count int) {
	var sizes []int
	for _, shape := range operands {
		for i, d := range shape {
			switch {
			case i == len(sizes):
				sizes = append(sizes, d)
			case sizes[i] == 1:
				sizes[i] = d
			case d != 1 && d != sizes[i]:
				count++
			}
		}
	}
	return count
}

// extents returns the shapes of the operands of an elementwise op or an Expand, the last axis first, or nil for
// another op. The shape that an Expand demands is its second operand.
func extents(n *onnx.Node, s *reference.Scope) (list [][]int) {
	if n.Is("Attention") {
		return scores(n, s)
	}
	if len(n.Inputs) < 2 || !elementwise[n.OpType] {
		return nil
	}
	for i, v := range n.Inputs {
		x, err := s.Value(v)
		if err != nil {
			return nil
		}
		shape := slices.Clone(x.Shape)
		if i == 1 && n.OpType == "Expand" {
			shape = nil
			for _, d := range x.I {
				shape = append(shape, int(max(d, 1)))
			}
		}
		slices.Reverse(shape)
		list = append(list, shape)
	}
	return list
}

// scores returns the shapes of the mask and of the scores of the standard's Attention, the last axis first, or nil
// without a mask.
func scores(n *onnx.Node, s *reference.Scope) [][]int {
	shape := func(i int) []int {
		if v := n.Input(i); v != nil {
			if x, err := s.Value(v); err == nil {
				return x.Shape
			}
		}
		return nil
	}
	q, k, mask, past := shape(0), shape(1), slices.Clone(shape(3)), shape(4)
	if len(q) < 3 || len(k) < 3 || mask == nil {
		return nil
	}
	rows := func(x []int) int { return x[len(x)/2] } // axis 1 of 3, or axis 2 of 4
	keys := rows(k)
	if len(past) == 4 {
		keys += past[2]
	}
	slices.Reverse(mask)
	return [][]int{mask, {keys, rows(q)}}
}

// elementwise are the ops whose operands broadcast, Expand, and ops of one operand by which models compute indices.
var elementwise = onnx.Words(`
	Add Sub Mul Div And Or Xor Where Expand Equal Less LessOrEqual Greater GreaterOrEqual Min Max Pow Mod Abs Not
	Sign Neg Log Ceil Floor Round Clip
`)

// traced lists, for each axis along which only some operands of a failed node grew, and for all these axes, the
// constants from which the other operands have them. Each alone would fail at an earlier node, next to the others.
func (s *search) traced(r *reading, failed outcome) (list []option) {
	before, grown := s.before[failed.node], s.size-s.dims[s.dim].Size
	// at returns the length of an operand's axis before and now.
	at := func(i, back int) (was, is int) {
		if x, y := before[i], failed.operands[i]; back < len(x) && len(x) == len(y) {
			return x[back], y[back]
		}
		return 1, 1
	}
	most, all, axes := 0, map[slot]rat{}, 0
	for _, shape := range failed.operands {
		most = max(most, len(shape))
	}
	for back := 0; back < most && len(before) == len(failed.operands); back++ {
		t := tracing{s, failed.node, map[slot]rat{}, map[*onnx.Value]bool{}}
		for i := range before {
			was, is := at(i, back)
			for k := range before {
				if n, same := at(k, back); was == is || n != same || n == 1 {
					continue
				}
				f := ratio(int64(is-was), grown)
				if failed.node.Is("Attention") {
					t.axis(failed.node, 3, back, f)
				} else if k == 1 && failed.node.Is("Expand") {
					t.element(failed.node, k, back, f)
				} else {
					t.axis(failed.node, k, back, f)
				}
			}
		}
		maps.DeleteFunc(t.set, func(at slot, _ rat) bool {
			f := r.factors[at]
			return f != nil && f[s.dim].num != 0
		})
		if len(t.set) > 0 {
			maps.Copy(all, t.set)
			axes++
		}
		if len(t.set) > 1 {
			list = append(list, option{set: t.set, how: 2, chained: true})
		}
	}
	if axes > 1 { // a table over both
		list = append(list, option{set: all, how: 2, chained: true})
	}
	return list
}

// tracing collects the constants from which values have their sizes.
type tracing struct {
	*search
	failed *onnx.Node
	set    map[slot]rat
	seen   map[*onnx.Value]bool
}

// axis follows an axis of a node's input, counted from the last one.
func (t *tracing) axis(n *onnx.Node, input, back int, f rat) {
	if c := t.constantOf(slot{node: n, input: input}); c != nil {
		if axis := c.tensor.Rank() - 1 - back; axis >= 0 && c.tensor.Shape[axis] > 1 {
			if c.family.grows(axis) {
				t.set[slot{n, input, lengthOf(axis)}] = f
			} else {
				t.unknown[t.failed] = c
			}
		}
		return
	}
	v := n.Input(input)
	if v == nil || v.Producer == nil || t.seen[v] {
		return
	}
	p, shape := v.Producer, t.shapes[v]
	if back >= len(shape) || shape[len(shape)-1-back] == 1 {
		return
	}
	t.seen[v] = true
	switch {
	case p.Is("Expand"):
		t.axis(p, 0, back, f)
		t.element(p, 1, back, f)
	case elementwise[p.OpType]:
		for i := range p.Inputs {
			t.axis(p, i, back, f)
		}
	case p.Is("Reshape"):
		t.element(p, 1, back, f)
		if x := t.shapes[p.Input(0)]; slices.Equal(long(x), long(shape)) {
			t.axis(p, 0, matching(shape, x, back), f)
		}
	case p.Is("Slice") && len(t.shapes[p.Input(0)]) == len(shape):
		t.axis(p, 0, back, f)
		ends := t.constantOf(slot{node: p, input: 2})
		if ends != nil && ends.tensor.Len() == 1 && ends.tensor.I[0] == int64(shape[len(shape)-1-back]) {
			t.set[slot{p, 2, 0}] = f
		}
	case p.Is("ConstantOfShape"):
		t.element(p, 0, back, f)
	case p.Is("Gather"):
		x, i := t.shapes[p.Input(0)], len(t.shapes[p.Input(1)])
		axis := int(p.AttrInt("axis", 0))
		if c := t.constantOf(slot{node: p, input: 1}); c != nil {
			i = c.tensor.Rank()
		}
		after := len(x) - 1 - (axis+len(x))%max(len(x), 1) // axes of the data after the gathered one
		if back >= after && back < after+i {
			t.axis(p, 1, back-after, f)
		}
	case p.Is("GatherND") && t.constantOf(slot{node: p, input: 1}) != nil:
		c := t.constantOf(slot{node: p, input: 1})
		if after := len(shape) - (c.tensor.Rank() - 1); back >= after { // axes of the data after the indexed ones
			t.axis(p, 1, back-after+1, f)
		}
	case p.Is("GatherElements"):
		t.axis(p, 1, back, f)
	case p.Is("Transpose"):
		if perm := p.AttrInts("perm"); len(perm) == len(shape) {
			t.axis(p, 0, len(shape)-1-int(perm[len(shape)-1-back]), f)
		}
	case p.Is("Unsqueeze"), p.Is("Squeeze"):
		t.axis(p, 0, matching(shape, t.shapes[p.Input(0)], back), f)
	case slices.Equal(shape, t.shapes[p.Input(0)]):
		t.axis(p, 0, back, f)
	}
}

// long returns the axes with more than one element.
func long(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
}

// matching returns the axis of another shape, counted from the last one, whose axes with more than one element are the
// same.
func matching(shape, other []int, back int) int {
	rank := len(long(shape[len(shape)-back:]))
	for i := range other {
		if other[len(other)-1-i] == 1 {
			continue
		}
		if rank == 0 {
			return i
		}
		rank--
	}
	return len(other)
}

// element follows an element of a shape that a node reads, counted from the last one.
func (t *tracing) element(n *onnx.Node, input, back int, f rat) {
	if c := t.constantOf(slot{node: n, input: input}); c != nil {
		if k := c.tensor.Len() - 1 - back; k >= 0 && c.hasSizes() && c.tensor.I[k] > 1 {
			t.set[slot{n, input, k}] = f
		}
		return
	}
	v := n.Input(input)
	if v == nil || v.Producer == nil {
		return
	}
	switch p := v.Producer; {
	case p.Is("Where"):
		t.element(p, 1, back, f)
		t.element(p, 2, back, f)
	case p.Is("Cast"), p.Is("Identity"):
		t.element(p, 0, back, f)
	case p.Is("Shape"):
		t.axis(p, 0, back, f)
	case p.Is("Concat"):
		for i := len(p.Inputs) - 1; i >= 0; i-- {
			count := slices.Max(append([]int{1}, t.shapes[p.Input(i)]...))
			if c := t.constantOf(slot{node: p, input: i}); c != nil {
				count = c.tensor.Len()
			}
			if back < count {
				t.element(p, i, back, f)
				return
			}
			back -= count
		}
	}
}
