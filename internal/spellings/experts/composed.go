package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteComposedRouter writes a router by identities, followed by experts of one product.
func WriteComposedRouter(w *writer.Writer) []*onnx.Value {
	w.Simply()
	r := &routed{Writer: w, hidden: writer.Choose(w, 4, 6), experts: writer.Choose(w, 4, 6, 8),
		k: writer.Choose(w, 2, 3)}
	w.Routed, w.Square = true, false
	dims := []writer.Dim{{Name: writer.ManyRows, Size: 5}, {Name: "", Size: r.hidden}}
	r.x = w.Enter(w.Input("x", w.Type, dims))[0]
	a := &writer.Algebra{Writer: w, Rank: 2, Size: r.experts}
	logits := composedLogits(a, r)
	ordered := logits // has the order of the scores
	scores := a.Softened
	if a.Chance(3) {
		scores = a.Logistic
	}
	s := scores(logits)
	if a.Chance(2) {
		ordered = s
	}
	switch {
	case a.Wrong("the least instead of the greatest"):
		ordered = a.Op("Neg", ordered)
	case a.Wrong("choice by the magnitude of the logits"):
		ordered = a.Op("Abs", logits)
	}
	top := a.Ops("TopK", 2, ordered, a.Ints(int64(r.k)), onnx.IntAttr("axis", -1))
	r.ids = top[1]
	switch {
	case a.Outside("scores of the next token"):
		r.weights = r.taken(r.nextRow(s), r.ids)
	case a.Outside("scores squared"):
		r.weights = r.taken(a.Op("Mul", s, s), r.ids)
	case ordered == s && a.Chance(2):
		r.weights = top[0]
	default:
		r.weights = r.taken(s, r.ids)
	}
	if a.Chance(2) { // divided by their sum
		total := a.Reduce("ReduceSum", r.weights, []int64{-1}, true)
		if a.Chance(2) {
			r.weights = a.Op("Mul", r.weights, a.Op("Reciprocal", total))
		} else {
			r.weights = a.Op("Div", r.weights, total)
		}
	}
	if a.Outside("weights of a shifted scale") {
		r.weights = a.Op("Add", r.weights, a.Number(0.5))
	}
	if a.Chance(3) {
		r.weights = a.Times(r.weights, 2.5)
	}
	e := r.Op("Gather", r.matrix(r.Type, r.experts, 5, r.hidden), r.ids)
	rows := r.Op("Squeeze", r.Op("MatMul", e, r.Op("Unsqueeze", r.x, r.Ints(1, 3))), r.Ints(3))
	return []*onnx.Value{r.combine(rows, r.weights, r.Type)}
}

// composedLogits multiplies the tokens by the router's matrix.
func composedLogits(a *writer.Algebra, r *routed) *onnx.Value {
	m := func(dims ...int) *onnx.Value { return r.random(onnx.Float, 0.15, dims...) }
	var y *onnx.Value
	switch a.Rand.IntN(4) {
	case 0:
		y = a.Op("Gemm", r.x, m(r.experts, r.hidden), onnx.IntAttr("transB", 1))
	case 1:
		y = a.Op("Einsum", r.x, m(r.hidden, r.experts), onnx.StringAttr("equation", "td,de->te"))
	case 2: // the transposed product
		t := a.Op("Transpose", r.x, onnx.IntsAttr("perm", []int64{1, 0}))
		y = a.Op("Transpose", a.Op("MatMul", m(r.experts, r.hidden), t), onnx.IntsAttr("perm", []int64{1, 0}))
	default:
		y = a.Op("MatMul", r.x, m(r.hidden, r.experts))
	}
	if a.Chance(3) {
		y = a.Times(y, 2)
	}
	return y
}
