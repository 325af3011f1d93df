package attention

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// checkDims returns a reason where a dimension of an operand may be another one than the op needs: products and sums of
// nodes broadcast one element, the op does not. How long a mask is that padding is read from is not asked: exports name
// that as they like, such as one more than the past.
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
	}
	batch := slices.Index(s.QAxes.Fields(), "b")
	list := []dim{
		{"batch", s.Q, batch, s.K, slices.Index(s.KAxes.Fields(), "b")},
		{"batch", s.Q, batch, s.V, slices.Index(s.VAxes.Fields(), "b")},
		{"batch", s.Q, batch, s.PastKey, 0}, {"batch", s.Q, batch, s.PastValue, 0},
		{"batch", s.Q, batch, s.KeyValid, 0},
	}
	for _, v := range append(slices.Clone(s.Bias), s.Choice) { // the op broadcasts these, but not to them
		if v != nil {
			rank, _ := b.g.Facts.Rank(v)
			fields := b.fields(rank)
			list = append(list, dim{"batch", s.Q, batch, v, slices.Index(fields, "b") - len(fields) + rank},
				dim{"rows", s.Q, slices.Index(s.QAxes.Fields(), "s"), v,
					slices.Index(fields, "s") - len(fields) + rank})
		}
	}
	for _, d := range list {
		if d.v != nil && d.at >= 0 && d.axis >= 0 && b.mayDiffer(d.of, d.at, d.v, d.axis) {
			return b.other(b.product, "the %s of %q and of %q may differ: nodes broadcast, and the op does not", d.what,
				d.of.Name, d.v.Name)
		}
	}
	return nil
}

// mayDiffer reports whether two dimensions are not proven to be equal, and an input of the graph has the second one
// under another name.
func (b *block) mayDiffer(x *onnx.Value, i int, y *onnx.Value, k int) bool {
	facts := b.g.Facts
	if d, ok := facts.Dim(y, k); ok && d == 1 || facts.SameDim(x, i, y, k) {
		return false
	}
	for v := range onnx.Upstream(func(*onnx.Value) bool { return false }, y) {
		rank, ok := facts.Rank(v)
		if !ok || v.Producer != nil || v.Constant() != nil {
			continue
		}
		for axis := range rank {
			same := true
			for w := range infer.Worlds {
				same = same && facts.Size(v, w, axis) == facts.Size(x, w, i)
			}
			if same && !facts.SameDim(x, i, v, axis) {
				return true
			}
		}
	}
	return false
}
