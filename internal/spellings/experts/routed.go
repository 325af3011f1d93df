// Package experts writes the blocks that send tokens to experts: routers, and the experts behind them.
package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// routed is a block of experts under construction: tokens, the router's outputs for them, and the sizes.
type routed struct {
	*writer.Writer
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
func (r *routed) wrong(name string) bool { return !r.fixed && r.Writer.Wrong(name) }

// outside is the writer's, if edits are offered.
func (r *routed) outside(name string) bool { return !r.fixed && r.Writer.Outside(name) }

// newRouted writes the inputs and a router of a form with edits or, for "", of any form without edits: experts are the
// same after another router.
func newRouted(w *writer.Writer, form string) *routed {
	r := &routed{Writer: w, fixed: form == "", many: form == "", hidden: writer.Choose(w, 4, 6),
		inner:   writer.Choose(w, 9, 11),
		experts: writer.Choose(w, 4, 4, 6, 8), k: writer.Choose(w, 2, 2,
			3), after: newAfter(w), onto: form == "" && w.Chance(4)}
	w.Routed, w.Square = true, false // experts and channels are distinguished by their numbers
	dims := append(w.Rows(1, 2, r.hidden), writer.Dim{Name: "", Size: r.hidden})
	dims[0].Name, dims[0].Size = writer.ManyRows, dims[0].Size+3
	r.tokens = w.Enter(w.Input("x", w.Type, dims))[0]
	r.x = r.tokens
	if len(dims) > 2 {
		r.x = r.Op("Reshape", r.tokens, r.Ints(-1, int64(r.hidden)))
	}
	if form == "" {
		form = writer.Choose(w, routerForms...)
	}
	r.router(form)
	r.fixed = false
	return r
}

// add adds two values in any order.
func (r *routed) add(a, b *onnx.Value) *onnx.Value {
	if r.Chance(2) {
		a, b = b, a
	}
	return r.Op("Add", a, b)
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
		v[i] = deviation * r.Rand.NormFloat64()
	}
	return r.Floats(t, dims, v)
}

// bools is a constant.
func (r *routed) bools(v ...int64) *onnx.Value {
	return r.Constant(writer.Must(reference.NewInts(onnx.Bool, []int{len(v)}, v).ToONNX("c")))
}

// combine weights and sums the rows [T, k, n] of the chosen experts, in a type.
func (r *routed) combine(rows, weights *onnx.Value, t onnx.DataType) *onnx.Value {
	if t != onnx.Float {
		weights = r.Cast(weights, t)
	}
	switch {
	case !r.many && r.Chance(4):
		one := r.Op("MatMul", r.Op("Unsqueeze", weights, r.Ints(1)), rows)
		return r.Op("Squeeze", one, r.Ints(1))
	case r.Chance(5):
		return r.Op("Einsum", weights, rows, onnx.StringAttr("equation", "tk,tkh->th"))
	}
	return r.Reduce("ReduceSum", r.Product(rows, r.Op("Unsqueeze", weights, r.Ints(-1))), []int64{1}, false)
}
