package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// factor describes an output channel: two channels of x, each times a channel of a table.
type factor [2]weighted

type weighted struct {
	x     int // index among the rotated channels of x
	table channel
}

// layout finds the order of pairs for which the factors are a rotation, and the tables. A rotation by the opposite
// angle has the minus sign in the other half.
func (t *tracer) layout(r *rotation, y *onnx.Value, factors []factor) (*rotation, *reason.Reason) {
	half := r.rotaryDim / 2
	place := func(interleaved bool, i int) (int, int) {
		if interleaved {
			return 2 * i, 2*i + 1
		}
		return i, i + half
	}
	pairs := false
	for _, l := range []struct{ in, out bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
		cos, sin := make([]channel, r.rotaryDim), make([]channel, r.rotaryDim)
		ok, paired := true, true
		for i := range half {
			a, b := place(l.in, i)
			p, q := place(l.out, i)
			// p = a cos - b sin, q = b cos + a sin
			var found [4]bool
			cos[p], found[0] = factors[p].of(a)
			sin[p], found[1] = factors[p].of(b)
			cos[q], found[2] = factors[q].of(b)
			sin[q], found[3] = factors[q].of(a)
			paired = paired && !slices.Contains(found[:], false)
			minus := &sin[p]
			if r.opposite {
				minus = &sin[q]
			}
			minus.sign = -minus.sign
		}
		if !paired {
			continue
		}
		pairs = true
		r.interleaved, r.outputLayout = l.in, "halves"
		if l.out {
			r.outputLayout = "interleaved"
		}
		pairwise := func(c []channel) []channel { // one for both channels of a pair; nil if they differ
			short := make([]channel, half)
			for i := range short {
				p, q := place(l.out, i)
				if c[p] != c[q] {
					return nil
				}
				short[i] = c[p]
			}
			return short
		}
		if r.cos, ok = t.table(cos, r.x, y); ok {
			r.sin, ok = t.table(sin, r.x, y)
		}
		if !ok {
			if r.cos, ok = t.table(pairwise(cos), r.x, y); ok {
				r.sin, ok = t.table(pairwise(sin), r.x, y)
			}
		}
		if ok && t.closed(y, r.x, r.cos, r.sin) {
			return r, nil
		}
	}
	if pairs {
		return nil, reason.New(reason.RotationTable, nil,
			"pairs of channels that no table of cosines and sines rotates: a sign or the order of the "+
				"angles differs")
	}
	return nil, reason.New(reason.RotationPairs, nil,
		"sums of products that pair channels in another way than by halves or neighbors")
}

// closed reports whether y is computed only from the operands. Otherwise it may be the rotation of another tensor that
// reads like one of x, such as rotate_half of x turned by the angle minus 90 degrees.
func (t *tracer) closed(y *onnx.Value, operands ...match.Block) bool {
	seen := map[*onnx.Value]bool{}
	for _, b := range operands {
		seen[b.Value] = true
	}
	var visit func(v *onnx.Value) bool
	visit = func(v *onnx.Value) bool {
		if v = t.g.Resolve(v); v == nil || seen[v] || !t.reached(v) {
			return true
		}
		if slices.ContainsFunc(operands, func(b match.Block) bool { return t.g.Alike(b.Value, v) }) {
			return true // computed twice
		}
		seen[v] = true
		if k := slices.IndexFunc(t.origins, func(o match.Block) bool { return o.Value == v }); k >= 0 &&
			!t.computed[k] {
			return false
		}
		_, inputs := sequenceOf(v.Producer)
		return !slices.ContainsFunc(inputs, func(in *onnx.Value) bool { return !visit(in) })
	}
	return visit(y)
}

func (f factor) of(x int) (channel, bool) {
	for _, w := range f {
		if w.x == x {
			return w.table, true
		}
	}
	return channel{}, false
}

// table finds a value of the graph with y's type whose last axes are exactly these channels and whose rows broadcast to
// those of x.
func (t *tracer) table(c []channel, x match.Block, y *onnx.Value) (match.Block, bool) {
	if c == nil {
		return match.Block{}, false
	}
	for _, b := range t.byAxes() {
		if slices.Equal(t.blocks[b], c) && t.g.Facts.DataType(b.Value) == t.g.Facts.DataType(y) &&
			t.g.RowsBroadcast(b, x) {
			return b, true
		}
	}
	return match.Block{}, false
}
