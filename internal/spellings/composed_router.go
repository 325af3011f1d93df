package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// softened returns the softmax over the last axis.
func (a *algebra) softened(x *onnx.Value) *onnx.Value {
	last := []int64{a.lastAxis(2)}
	switch a.r.IntN(5) {
	case 0:
		return a.op("Exp", a.op("LogSoftmax", x, onnx.IntAttr("axis", -1)))
	case 1:
		e := a.op("Exp", a.op("Sub", x, a.reduce("ReduceMax", x, last, true)))
		if a.chance(2) {
			return a.op("Mul", e, a.op("Reciprocal", a.over(e)))
		}
		return a.op("Div", e, a.over(e))
	case 2: // exp(x - log(sum(exp(x))))
		return a.op("Exp", a.op("Sub", x, a.reduce("ReduceLogSumExp", x, last, true)))
	case 3: // of x minus any number
		return a.op("Softmax", a.op("Sub", x, a.reduce("ReduceMean", x, last, true)), onnx.IntAttr("axis", -1))
	}
	return a.op("Softmax", x, onnx.IntAttr("axis", -1))
}

// writeComposedRouter writes a router by identities, followed by experts of one product.
func writeComposedRouter(w *writer) []*onnx.Value {
	w.simply()
	r := &routed{writer: w, hidden: choose(w, 4, 6), experts: choose(w, 4, 6, 8), k: choose(w, 2, 3)}
	w.routed, w.square = true, false
	dims := []dim{{manyRows, 5}, {"", r.hidden}}
	r.x = w.enter(w.input("x", w.typ, dims))[0]
	a := &algebra{writer: w, rank: 2, size: r.experts}
	logits := a.logits(r)
	ordered := logits // has the order of the scores
	scores := a.softened
	if a.chance(3) {
		scores = a.logistic
	}
	s := scores(logits)
	if a.chance(2) {
		ordered = s
	}
	switch {
	case a.wrong("the least instead of the greatest"):
		ordered = a.op("Neg", ordered)
	case a.wrong("choice by the magnitude of the logits"):
		ordered = a.op("Abs", logits)
	}
	top := a.ops("TopK", 2, ordered, a.ints(int64(r.k)), onnx.IntAttr("axis", -1))
	r.ids = top[1]
	switch {
	case a.outside("scores of the next token"):
		r.weights = r.taken(r.nextRow(s), r.ids)
	case a.outside("scores squared"):
		r.weights = r.taken(a.op("Mul", s, s), r.ids)
	case ordered == s && a.chance(2):
		r.weights = top[0]
	default:
		r.weights = r.taken(s, r.ids)
	}
	if a.chance(2) { // divided by their sum
		total := a.reduce("ReduceSum", r.weights, []int64{-1}, true)
		if a.chance(2) {
			r.weights = a.op("Mul", r.weights, a.op("Reciprocal", total))
		} else {
			r.weights = a.op("Div", r.weights, total)
		}
	}
	if a.outside("weights of a shifted scale") {
		r.weights = a.op("Add", r.weights, a.number(0.5))
	}
	if a.chance(3) {
		r.weights = a.times(r.weights, 2.5)
	}
	e := r.op("Gather", r.matrix(r.typ, r.experts, 5, r.hidden), r.ids)
	rows := r.op("Squeeze", r.op("MatMul", e, r.op("Unsqueeze", r.x, r.ints(1, 3))), r.ints(3))
	return []*onnx.Value{r.combine(rows, r.weights, r.typ)}
}

// logits multiplies the tokens by the router's matrix.
func (a *algebra) logits(r *routed) *onnx.Value {
	m := func(dims ...int) *onnx.Value { return r.random(onnx.Float, 0.15, dims...) }
	var y *onnx.Value
	switch a.r.IntN(4) {
	case 0:
		y = a.op("Gemm", r.x, m(r.experts, r.hidden), onnx.IntAttr("transB", 1))
	case 1:
		y = a.op("Einsum", r.x, m(r.hidden, r.experts), onnx.StringAttr("equation", "td,de->te"))
	case 2: // the transposed product
		t := a.op("Transpose", r.x, onnx.IntsAttr("perm", []int64{1, 0}))
		y = a.op("Transpose", a.op("MatMul", m(r.experts, r.hidden), t), onnx.IntsAttr("perm", []int64{1, 0}))
	default:
		y = a.op("MatMul", r.x, m(r.hidden, r.experts))
	}
	if a.chance(3) {
		y = a.times(y, 2)
	}
	return y
}
