package rotary

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// rotation is a rotary position embedding found in a graph: y is x with some pairs of its channels rotated, by angles
// whose cosines and sines are in tables. Its fields are like mojo.RotaryEmbedding's.
type rotation struct {
	x, cos, sin  match.Block
	interleaved  bool   // the pairs are neighbors in x instead of half the rotated channels apart
	rotaryDim    int    // number of rotated channels
	rotatedSide  string // "first" or "last" channels of x
	outputLayout string // "halves" or "interleaved"
	opposite     bool   // the angles are the negatives of the tables' angles
}

// rotationRoots are the ops that may end a rotation.
var rotationRoots = []string{"Add", "Sub", "Sum", "Concat", "ConcatFromSequence", "Reshape", "Flatten", "Transpose"}

var noInput = reason.New(reason.RotationInput, nil,
	"a sum of products without a common factor as wide as the result")

// rotationOf finds the rotation that computes y, by the angles of the tables or by their negatives. Otherwise why is
// the obstacle, at value at; it is nil if nothing resembles a rotation.
//
// Every channel of y is written as a sum of products of channels, whatever the spelling: rotate_half, halves computed
// one by one, pairs as a trailing axis (complex numbers), stacked neighbors. Then x is the tensor as wide as y that has
// one factor of each product, and the other factors must be the tables of some layout of pairs.
func rotationOf(g *match.View, y *onnx.Value, opposite bool) (r *rotation, t *tracer, at *onnx.Value,
	why *reason.Reason) {
	if !mayRotate(g, y.Producer) {
		return nil, newTracer(g), y, nil
	}
	last := match.Memo[lastTraced](g)
	if last.y != y {
		first := newTracer(g)
		outputs, at, why := first.outputs(y)
		*last = lastTraced{y, first, outputs, at, why}
	}
	t = last.tracer.clone() // which follows more channels below
	outputs, at, why := last.outputs, last.at, last.why
	if outputs == nil {
		return nil, t, at, why
	}
	why = noInput
	for _, x := range t.byAxes() {
		if x.Axes > 2 || x.Value == y || len(t.blocks[x]) != len(outputs) || !t.fits(x, y) {
			continue
		}
		r, other := t.rotationFrom(x, y, outputs, opposite)
		if r != nil {
			return r, t, nil, nil
		}
		why = cmp.Or(other, why)
	}
	return nil, t, y, why
}

// lastTraced is the memo of a graph's last trace: both views trace the same value, one after the other.
type lastTraced struct {
	y       *onnx.Value
	tracer  *tracer
	outputs []output
	at      *onnx.Value
	why     *reason.Reason
}

// mayRotate is a quick check of the root: most additions add matrix products, and most concatenations join shapes.
func mayRotate(g *match.View, n *onnx.Node) bool {
	if n == nil || !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	leads := func(v *onnx.Value, ops ...string) bool {
		p := match.Producer(g.Resolve(v))
		return p != nil && onnx.IsStandardDomain(p.Domain) && slices.Contains(ops, p.OpType)
	}
	products := []string{"Mul", "Neg", "Concat", "ConcatFromSequence"}
	switch n.OpType {
	case "Add", "Sub", "Sum":
		return len(n.Inputs) == 2 && leads(n.Inputs[0], products...) && leads(n.Inputs[1], products...)
	case "ConcatFromSequence":
		return leads(n.Input(0), "SequenceConstruct")
	case "Concat":
		return slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
			return leads(v, "Add", "Sub", "Sum", "Concat", "ConcatFromSequence", "Unsqueeze", "Reshape")
		})
	}
	return leads(n.Input(0), "Concat", "ConcatFromSequence", "Add", "Sub", "Sum", "Transpose", "Reshape")
}

// fits reports whether the block has rows like those of y, and its type or a narrower one.
func (t *tracer) fits(x match.Block, y *onnx.Value) bool {
	a, b := t.g.Facts.DataType(x.Value), t.g.Facts.DataType(y)
	return (a == b || match.Widens(a, b)) && t.g.SameRows(x, match.Block{Value: y, Axes: 1})
}

// rotationFrom reads the outputs as a rotation of x. why is nil if the products do not contain x.
func (t *tracer) rotationFrom(x match.Block, y *onnx.Value, outs []output, opposite bool) (r *rotation,
	why *reason.Reason) {
	read := t.reader(x)
	if read == nil {
		return nil, nil
	}
	// The rotated channels are the first or the last ones; the others are passed on.
	first, last := -1, -1
	for j, o := range outs {
		if o.rotated {
			if first < 0 {
				first = j
			}
			last = j
		}
	}
	for j, o := range outs {
		if o.rotated {
			continue
		}
		i, s, ok := read(o.passed)
		switch {
		case !ok:
			return nil, nil
		case j > first && j < last:
			return nil, reason.New("", nil, "a rotation of channels that are not contiguous")
		case i != j || s != 1:
			return nil, reason.New("", nil, "a rotation that passes channel %d of its input on as channel %d", i, j)
		}
	}
	dim := last - first + 1
	switch {
	case dim%2 != 0:
		return nil, reason.New("", nil, "a rotation of %d channels, an odd number", dim)
	case first > 0 && last < len(outs)-1:
		return nil, reason.New("", nil, "a rotation of only the middle channels")
	}
	r = &rotation{x: x, rotaryDim: dim, rotatedSide: "first", opposite: opposite}
	if first > 0 {
		r.rotatedSide = "last"
	}
	factors := make([]factor, dim)
	for j := range factors {
		for k, f := range outs[first+j].terms {
			i, s, ok := read(f.a)
			table := f.b
			if j2, s2, ok2 := read(f.b); ok2 && !ok {
				i, s, ok, table = j2, s2, true, f.a
			}
			if !ok {
				return nil, nil
			}
			if i -= first; i < 0 || i >= dim {
				return nil, reason.New("", nil, "a rotation that reads channel %d, which it does not rotate",
					i+first)
			}
			table.sign *= s * f.sign
			factors[j][k] = weighted{i, table}
		}
		if factors[j][0].x == factors[j][1].x {
			return nil, reason.New(reason.PairOfOne, nil,
				"channel %d made of one channel of the input instead of two", first+j)
		}
	}
	return t.layout(r, y, factors)
}

// reader returns a function that finds a channel in x, and its sign there; nil if x has a channel twice.
func (t *tracer) reader(x match.Block) func(c channel) (i int, sign float64, ok bool) {
	channels := t.blocks[x]
	place := make([][]int, len(t.origins)) // by origin and index: the index in x, plus 1
	for i, c := range channels {
		if place[c.origin] == nil {
			place[c.origin] = make([]int, len(t.blocks[t.origins[c.origin]]))
		}
		p := &place[c.origin][c.index]
		if *p != 0 {
			return nil
		}
		*p = i + 1
	}
	return func(c channel) (int, float64, bool) {
		if place[c.origin] == nil || place[c.origin][c.index] == 0 {
			return 0, 0, false
		}
		i := place[c.origin][c.index] - 1
		return i, c.sign * channels[i].sign, true
	}
}
