package attention

import (
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// checkDims returns a reason if a dimension of an operand may differ from the one that the op needs: nodes broadcast a
// dimension of 1, and the op does not. The length of a padding mask is not checked. Exporters name it freely, such as
// past plus 1, and the op fails if it is shorter than the keys.
func (b *block) checkDims() *reason.Reason {
	s := b.site
	if b.op != nil {
		return nil
	}
	type dim struct {
		what string
		of   *onnx.Value
		at   int
		v    *onnx.Value
		axis int
		but  *onnx.Value // no conflict through this value: the op checks its length itself
	}
	batch := slices.Index(s.QAxes.Fields(), "b")
	list := []dim{
		{"batch", s.Q, batch, s.K, slices.Index(s.KAxes.Fields(), "b"), nil},
		{"batch", s.Q, batch, s.V, slices.Index(s.VAxes.Fields(), "b"), nil},
		{"batch", s.Q, batch, s.PastKey, 0, nil}, {"batch", s.Q, batch, s.PastValue, 0, nil},
		{"batch", s.Q, batch, s.KeyValid, 0, nil},
	}
	if why := b.checkResult(); why != nil {
		return why
	}
	for _, v := range append(slices.Clone(s.Bias), s.Choice) { // the op broadcasts these, but never the queries to them
		if v != nil {
			rank, _ := b.g.Facts.Rank(v)
			fields := b.fields(rank)
			list = append(list, dim{"batch", s.Q, batch, v, slices.Index(fields, "b") - len(fields) + rank, nil},
				dim{"rows", s.Q, slices.Index(s.QAxes.Fields(), "s"), v,
					slices.Index(fields, "s") - len(fields) + rank, nil})
		}
	}
	if s.Causal || s.Window > 0 { // the op counts positions by queries and keys, masks perhaps otherwise
		keys, keysAt := s.K, slices.Index(s.KAxes.Fields(), "s")
		if s.PresentKey != nil {
			keys, keysAt = s.PresentKey, 2
		}
		for _, v := range b.masksOf() {
			rank, _ := b.g.Facts.Rank(v)
			fields := b.fields(rank)
			list = append(list,
				dim{"rows", s.Q, slices.Index(s.QAxes.Fields(), "s"), v,
					slices.Index(fields, "s") - len(fields) + rank, s.KeyValid},
				dim{"length", keys, keysAt, v, slices.Index(fields, "l") - len(fields) + rank, s.KeyValid})
		}
	}
	for _, d := range list {
		if d.v != nil && d.at >= 0 && d.axis >= 0 && b.mayDiffer(d.of, d.at, d.v, d.axis, d.but) {
			return b.other(b.product, "the %s of %q and of %q may differ: the nodes broadcast, the op does not", d.what,
				d.of.Name, d.v.Name)
		}
	}
	return nil
}

// checkResult returns a reason if the scores or the result may have other rows or another batch than the operands. A
// graph may run only with one size, such as that of an added table. Then all worlds have this size, and a Slice of as
// many rows takes all rows in them.
func (b *block) checkResult() *reason.Reason {
	s, keys := b.site, b.site.KAxes
	k := s.K
	if s.PresentKey != nil {
		k, keys = s.PresentKey, byHeads
	}
	type dim struct {
		of   *onnx.Value
		axes Axes
		at   string
	}
	q, scores := dim{s.Q, s.QAxes, "s"}, dim{b.scores(), b.scoreAxes, "s"}
	for _, d := range [][2]dim{{{s.Q, s.QAxes, "b"}, {s.Y, s.YAxes, "b"}}, {q, {s.Y, s.YAxes, "s"}}, {q, scores},
		{{k, keys, "s"}, {b.scores(), b.scoreAxes, "l"}}, {{s.K, s.KAxes, "s"}, {s.V, s.VAxes, "s"}}} {
		x, y := d[0], d[1]
		i, k := slices.Index(x.axes.Fields(), x.at), slices.Index(y.axes.Fields(), y.at)
		rank, _ := b.g.Facts.Rank(y.of)
		if i >= 0 && k >= 0 && rank == len(y.axes.Fields()) && b.g.Facts.MayDiffer(x.of, i, y.of, k) {
			return b.other(b.product, "dimension %d of %q and %d of %q may differ", i, x.of.Name, k, y.of.Name)
		}
	}
	return nil
}

// mayDiffer reports whether two dimensions are not proven equal and an input of the graph has the second one under
// another name. Inputs that the value but is computed from do not count.
func (b *block) mayDiffer(x *onnx.Value, i int, y *onnx.Value, k int, but *onnx.Value) bool {
	facts := b.g.Facts
	if d, ok := facts.Dim(y, k); ok && d == 1 || facts.SameDim(x, i, y, k) {
		return false
	}
	known := map[*onnx.Value]bool{}
	if but != nil {
		for v := range upstream(but) {
			known[v] = true
		}
	}
	type dim struct {
		of   *onnx.Value
		axis int
	}
	named := func(y *onnx.Value) (list []dim) { // dimensions of inputs that equal x's in all worlds
		for v := range upstream(y) {
			rank, ok := facts.Rank(v)
			if !ok || v.Producer != nil || v.Constant() != nil || known[v] {
				continue
			}
			for axis := range rank {
				same := true
				for w := range infer.Worlds {
					same = same && facts.Size(v, w, axis) == facts.Size(x, w, i)
				}
				if same {
					list = append(list, dim{v, axis})
				}
			}
		}
		return list
	}
	var own []dim // names of x's dimension, for an x broadcast with another value
	for _, d := range named(y) {
		if facts.SameDim(x, i, d.of, d.axis) {
			continue
		}
		if own == nil {
			own = named(x)
		}
		if len(own) == 0 || slices.ContainsFunc(own, func(o dim) bool {
			return !facts.SameDim(o.of, o.axis, d.of, d.axis)
		}) {
			return true
		}
	}
	return false
}

// upstream lists the values that v is computed from, and v itself.
func upstream(v *onnx.Value) iter.Seq[*onnx.Value] {
	return onnx.Upstream(func(*onnx.Value) bool { return false }, v)
}
