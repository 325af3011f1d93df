package spellings

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// routed is a block of experts under construction: tokens, what the router gives for them, and the sizes.
type routed struct {
	*writer
	x             *onnx.Value // tokens [T, hidden], in the graph's type
	scores        *onnx.Value // of all experts [T, experts]
	weights, ids  *onnx.Value // [T, k]; weights in float32
	hidden, inner int
	experts, k    int
	fixed         bool // no edit is offered for what is being written
	many          bool // the block is the experts, not the router: their sum leaves no axis of one place, at which it might end
}

// wrong is the writer's, where edits are offered.
func (r *routed) wrong(name string) bool { return !r.fixed && r.writer.wrong(name) }

// outside is the writer's, likewise.
func (r *routed) outside(name string) bool { return !r.fixed && r.writer.outside(name) }

// newRouted writes the inputs and a router, of which edits are offered or not: experts are the same behind another router.
func newRouted(w *writer, edits bool) *routed {
	r := &routed{writer: w, fixed: !edits, hidden: choose(w, 4, 6), inner: choose(w, 9, 11), experts: choose(w, 4, 4, 6, 8), k: choose(w, 2, 2, 3)}
	w.square = false // experts and channels are told apart by their numbers
	dims := append(w.rows(1, 1, r.hidden), dim{"", r.hidden})
	dims[0].size += 3
	r.x = w.enter(w.input("x", w.typ, dims))[0]
	r.router()
	r.fixed = false
	return r
}

// add adds two values in any order.
func (r *routed) add(a, b *onnx.Value) *onnx.Value {
	if r.chance(2) {
		a, b = b, a
	}
	return r.op("Add", a, b)
}

// matrix is a constant of random elements.
func (r *routed) matrix(t onnx.DataType, dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = 0.5 * r.r.NormFloat64()
	}
	return r.floats(t, dims, v)
}

// logits writes the product that the scores come from. Weights are small, so that no score is rounded to one or to zero.
func (r *routed) logits() *onnx.Value {
	x := r.x
	if r.half() {
		x = r.cast(x, onnx.Float)
	}
	small := func(dims ...int) *onnx.Value {
		v := make([]float64, dims[0]*dims[1])
		for i := range v {
			v[i] = 0.15 * r.r.NormFloat64()
		}
		return r.floats(onnx.Float, dims, v)
	}
	switch r.r.IntN(3) {
	case 0:
		return r.op("Gemm", x, small(r.experts, r.hidden), onnx.IntAttr("transB", 1))
	case 1:
		return r.add(r.op("MatMul", x, small(r.hidden, r.experts)), r.matrix(onnx.Float, r.experts))
	}
	return r.op("MatMul", x, small(r.hidden, r.experts))
}

// softmax writes e^x over its sum along an axis.
func (r *routed) softmax(x *onnx.Value, axis int64) *onnx.Value {
	if r.wrong("softmax over the tokens") {
		axis = 0
	}
	switch r.r.IntN(5) {
	case 0:
		return r.op("Exp", r.op("LogSoftmax", x, onnx.IntAttr("axis", axis)))
	case 1:
		e := r.op("Exp", r.op("Sub", x, r.reduce("ReduceMax", x, []int64{axis}, true)))
		return r.op("Div", e, r.reduce("ReduceSum", e, []int64{axis}, true))
	}
	return r.op("Softmax", x, onnx.IntAttr("axis", axis))
}

// top writes the k greatest of the scores, and where they are.
func (r *routed) top(scores *onnx.Value) (values, ids *onnx.Value) {
	args := []any{scores, r.ints(int64(r.k))}
	if r.chance(2) {
		args = append(args, onnx.IntAttr("axis", r.lastAxis(2)))
	}
	if r.wrong("the least in place of the greatest") {
		args = append(args, onnx.IntAttr("largest", 0))
	}
	out := r.ops("TopK", 2, args...)
	return out[0], out[1]
}

// router writes scores, the choice and the weights.
func (r *routed) router() {
	logits := r.logits()
	form := r.r.IntN(4)
	switch form {
	case 0: // softmax of the chosen logits
		var values *onnx.Value
		values, r.ids = r.top(logits)
		r.weights = r.softmax(values, r.lastAxis(2))
	case 1: // softmax of all, then the choice
		r.scores = r.softmax(logits, r.lastAxis(2))
		r.weights, r.ids = r.top(r.scores)
	default: // sigmoids, with a correction that counts for the choice alone
		if r.scores = r.op("Sigmoid", logits); !r.fixed {
			r.scores = r.sigmoid(logits, onnx.Float)
			r.smaller = r.smaller || r.change == "sigmoid twice" // the inner one as the logits
		}
		if form == 2 {
			r.weights, r.ids = r.top(r.scores)
			break
		}
		corrected := r.add(r.scores, r.matrix(onnx.Float, r.experts))
		var values *onnx.Value
		values, r.ids = r.top(corrected)
		if r.weights = r.op("GatherElements", r.scores, r.ids, onnx.IntAttr("axis", r.lastAxis(2))); r.wrong("weights with the correction") {
			r.weights = values
		}
	}
	r.scale()
}

// scale writes what becomes of the chosen scores.
func (r *routed) scale() {
	sum := func(x *onnx.Value) *onnx.Value { return r.reduce("ReduceSum", x, []int64{r.lastAxis(2)}, true) }
	switch {
	case r.outside("weights squared"):
		r.weights = r.op("Mul", r.weights, r.weights)
	case r.k > 1 && r.outside("divided by the greatest weight"):
		r.weights = r.op("Div", r.weights, r.reduce("ReduceMax", r.weights, []int64{1}, true))
	case r.scores != nil && r.outside("divided by the magnitude of all scores"):
		r.weights = r.op("Div", r.weights, sum(r.op("Mul", r.scores, r.scores)))
	case r.outside("weights of a shifted scale"):
		r.weights = r.op("Add", r.weights, r.floats(onnx.Float, []int{}, []float64{0.5}))
	case r.chance(2) && r.k > 1:
		d := sum(r.weights)
		if r.chance(2) {
			d = r.add(d, r.floats(onnx.Float, []int{}, []float64{choose(r.writer, 1e-20, 1e-6)}))
		}
		if r.chance(4) {
			r.weights = r.product(r.weights, r.op("Reciprocal", d))
		} else {
			r.weights = r.op("Div", r.weights, d)
		}
	}
	if r.chance(3) {
		r.weights = r.product(r.weights, r.floats(onnx.Float, []int{}, []float64{choose(r.writer, 2.5, 1, 1.5)}))
	}
}

// combine weights and adds the rows [T, k, n] of the chosen experts, in the graph's type.
func (r *routed) combine(rows *onnx.Value, t onnx.DataType) *onnx.Value {
	weights := r.weights
	if t != onnx.Float {
		weights = r.cast(weights, t)
	}
	if !r.many && r.chance(4) {
		one := r.op("MatMul", r.op("Unsqueeze", weights, r.ints(1)), rows)
		return r.op("Squeeze", one, r.ints(1))
	}
	return r.reduce("ReduceSum", r.product(rows, r.op("Unsqueeze", weights, r.ints(-1))), []int64{1}, false)
}

// writeRouter writes a router, and behind it experts of one product.
func writeRouter(w *writer) []*onnx.Value {
	r := newRouted(w, true)
	e := r.op("Gather", r.matrix(r.typ, r.experts, 5, r.hidden), r.ids)
	rows := r.op("Squeeze", r.op("MatMul", e, r.op("Unsqueeze", r.x, r.ints(1, 3))), r.ints(3))
	y := r.combine(rows, r.typ)
	return []*onnx.Value{y}
}
