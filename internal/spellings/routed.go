package spellings

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// routed is a block of experts under construction: tokens, the router's outputs for them, and the sizes.
type routed struct {
	*writer
	tokens        *onnx.Value // the block's input, [T, hidden] or [batch, sequence, hidden], in the graph's type
	x             *onnx.Value // its rows [T, hidden]
	scores        *onnx.Value // of all experts [T, experts]
	weights, ids  *onnx.Value // [T, k]; weights in float32
	hidden, inner int
	experts, k    int
	after         after
	onto          bool // the result is added to the tokens
	fixed         bool // offer no edits for now
	// the block is the experts, not the router: their sum leaves no axis of one place, at which it might end
	many bool
}

// wrong is the writer's, if edits are offered.
func (r *routed) wrong(name string) bool { return !r.fixed && r.writer.wrong(name) }

// outside is the writer's, if edits are offered.
func (r *routed) outside(name string) bool { return !r.fixed && r.writer.outside(name) }

// newRouted writes the inputs and a router of a form with edits or, for "", of any form without edits: experts are the
// same after another router.
func newRouted(w *writer, form string) *routed {
	r := &routed{writer: w, fixed: form == "", many: form == "", hidden: choose(w, 4, 6), inner: choose(w, 9, 11),
		experts: choose(w, 4, 4, 6, 8), k: choose(w, 2, 2, 3), after: newAfter(w), onto: form == "" && w.chance(4)}
	w.routed, w.square = true, false // experts and channels are distinguished by their numbers
	dims := append(w.rows(1, 2, r.hidden), dim{"", r.hidden})
	dims[0].name, dims[0].size = manyRows, dims[0].size+3
	r.tokens = w.enter(w.input("x", w.typ, dims))[0]
	r.x = r.tokens
	if len(dims) > 2 {
		r.x = r.op("Reshape", r.tokens, r.ints(-1, int64(r.hidden)))
	}
	if form == "" {
		form = choose(w, routerForms...)
	}
	r.router(form)
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

// matrix returns a constant of random elements.
func (r *routed) matrix(t onnx.DataType, dims ...int) *onnx.Value { return r.random(t, 0.5, dims...) }

func (r *routed) random(t onnx.DataType, deviation float64, dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = deviation * r.r.NormFloat64()
	}
	return r.floats(t, dims, v)
}

// bools is a constant.
func (r *routed) bools(v ...int64) *onnx.Value {
	return r.constant(must(reference.NewInts(onnx.Bool, []int{len(v)}, v).ToONNX("c")))
}

// combine weights and sums the rows [T, k, n] of the chosen experts, in a type.
func (r *routed) combine(rows, weights *onnx.Value, t onnx.DataType) *onnx.Value {
	if t != onnx.Float {
		weights = r.cast(weights, t)
	}
	switch {
	case !r.many && r.chance(4):
		one := r.op("MatMul", r.op("Unsqueeze", weights, r.ints(1)), rows)
		return r.op("Squeeze", one, r.ints(1))
	case r.chance(5):
		return r.op("Einsum", weights, rows, onnx.StringAttr("equation", "tk,tkh->th"))
	}
	return r.reduce("ReduceSum", r.product(rows, r.op("Unsqueeze", weights, r.ints(-1))), []int64{1}, false)
}
