package attention

import (
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// checkDims returns a reason where a dimension of an operand may be another one than the op needs: products and sums of
// nodes broadcast one element, the op does not. How long a mask is that padding is read from is not asked: exports name
// that as they like, such as one more than the past, and the op fails where it is shorter than the keys.
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
		but  *onnx.Value // the op itself demands that this is as long as it must be
	}
	batch := slices.Index(s.QAxes.Fields(), "b")
	list := []dim{
		{"batch", s.Q, batch, s.K, slices.Index(s.KAxes.Fields(), "b"), nil},
		{"batch", s.Q, batch, s.V, slices.Index(s.VAxes.Fields(), "b"), nil},
		{"batch", s.Q, batch, s.PastKey, 0, nil}, {"batch", s.Q, batch, s.PastValue, 0, nil},
		{"batch", s.Q, batch, s.KeyValid, 0, nil},
	}
	for _, v := range append(slices.Clone(s.Bias), s.Choice) { // the op broadcasts these, but not to them
		if v != nil {
			rank, _ := b.g.Facts.Rank(v)
			fields := b.fields(rank)
			list = append(list, dim{"batch", s.Q, batch, v, slices.Index(fields, "b") - len(fields) + rank, nil},
				dim{"rows", s.Q, slices.Index(s.QAxes.Fields(), "s"), v,
					slices.Index(fields, "s") - len(fields) + rank, nil})
		}
	}
	if s.Causal || s.Window > 0 { // the op counts positions by queries and keys, masks perhaps by something else
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
			return b.other(b.product, "the %s of %q and of %q may differ: nodes broadcast, and the op does not", d.what,
				d.of.Name, d.v.Name)
		}
	}
	return nil
}

// mayDiffer reports whether two dimensions are not proven to be equal, and an input of the graph has the second one
// under another name, other than the inputs that the value but is computed from.
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
	named := func(y *onnx.Value) (list []dim) { // inputs' dimensions that are as long as x's in all worlds
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
	var own []dim // that x's is named by, where it is broadcast with something else
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

// upstream lists what a value is computed from, itself among it.
func upstream(v *onnx.Value) iter.Seq[*onnx.Value] {
	return onnx.Upstream(func(*onnx.Value) bool { return false }, v)
}
