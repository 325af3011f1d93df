package spellings

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// expert is how the experts of a block are made.
type expert struct {
	gated, inOut, bias bool
	interleaved        bool   // gate and up in turn
	gemm               bool   // products and biases of single experts are one node
	act                string // silu, gelu or relu
	up, down           *onnx.Value
	upBias, downBias   *onnx.Value
}

// newExpert chooses a form.
func (r *routed) newExpert() *expert {
	e := &expert{gated: !r.chance(3), inOut: r.chance(2), bias: r.chance(2), interleaved: r.chance(3)}
	e.gemm = e.bias && r.chance(3)
	if e.act = choose(r.writer, "silu", "silu", "gelu", "relu"); r.half() && e.act == "gelu" {
		e.act = "silu" // its constants are too coarse to tell which gelu it is
	}
	return e
}

// units is the number of rows of an expert's first product.
func (r *routed) units(e *expert) int {
	if e.gated {
		return 2 * r.inner
	}
	return r.inner
}

// stack writes the weights of all experts.
func (r *routed) stack(e *expert) {
	n := r.units(e)
	up, down := []int{r.experts, n, r.hidden}, []int{r.experts, r.hidden, r.inner}
	if e.inOut {
		up, down = []int{r.experts, r.hidden, n}, []int{r.experts, r.inner, r.hidden}
	}
	e.up, e.down = r.matrix(r.typ, up...), r.matrix(r.typ, down...)
	if e.bias {
		e.upBias, e.downBias = r.matrix(r.typ, r.experts, n), r.matrix(r.typ, r.experts, r.hidden)
	}
}

// activate writes what an expert does between its products, on values of a rank.
func (r *routed) activate(e *expert, h *onnx.Value, rank int, act string) *onnx.Value {
	apply := func(x *onnx.Value) *onnx.Value {
		switch act {
		case "relu":
			return r.op("Relu", x)
		case "gelu":
			half, one := r.scalar(r.typ, 0.5), r.scalar(r.typ, 1)
			return r.product(x, half, r.add(one, r.op("Erf", r.op("Mul", x, r.scalar(r.typ, 0.7071067811865476)))))
		}
		return r.product(x, r.op("Sigmoid", x))
	}
	if !e.gated {
		return apply(h)
	}
	c := channels{r.writer, rank, 2 * r.inner}
	var gate, up *onnx.Value
	if e.interleaved {
		gate, up = c.every(h, 2, 0), c.every(h, 2, 1)
	} else {
		parts := c.cut(h, r.inner, r.inner)
		gate, up = parts[0], parts[1]
	}
	switch {
	case r.wrong("magnitude of up"):
		up = r.op("Abs", up)
	case r.wrong("sum in place of the product"):
		return r.op("Add", apply(gate), up)
	case r.wrong("activation of both"):
		return r.op("Mul", apply(gate), apply(up))
	}
	return r.product(apply(gate), up)
}

// times multiplies each row of x [T, k, n] with a matrix of its own, out x in or in x out.
func (r *routed) times(x, matrices *onnx.Value, inOut bool) *onnx.Value {
	if r.chance(3) {
		return r.op("Einsum", x, matrices, onnx.StringAttr("equation", map[bool]string{false: "tkn,tkmn->tkm", true: "tkn,tknm->tkm"}[inOut]))
	}
	if inOut == r.chance(4) { // turned around
		matrices, inOut = r.op("Transpose", matrices, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})), !inOut
	}
	if inOut {
		return r.op("Squeeze", r.op("MatMul", r.op("Unsqueeze", x, r.ints(2)), matrices), r.ints(2))
	}
	return r.op("Squeeze", r.op("MatMul", matrices, r.op("Unsqueeze", x, r.ints(3))), r.ints(3))
}

// writeGathered writes experts whose weights are gathered for every token.
func writeGathered(w *writer) []*onnx.Value {
	r := newRouted(w, false)
	r.many = true
	e := r.newExpert()
	r.stack(e)
	of := func(stack *onnx.Value, ids *onnx.Value) *onnx.Value {
		if r.chance(3) {
			return r.op("GatherND", stack, r.op("Unsqueeze", ids, r.ints(-1)))
		}
		return r.op("Gather", stack, ids)
	}
	x := r.op("Expand", r.op("Unsqueeze", r.x, r.ints(1)), r.ints(1, int64(r.k), 1))
	if r.chance(2) { // MatMul and Einsum stretch it
		x = r.op("Unsqueeze", r.x, r.ints(1))
		x = r.op("Tile", x, r.ints(1, int64(r.k), 1))
	}
	h := r.times(x, of(e.up, r.ids), e.inOut)
	if e.bias {
		h = r.add(h, of(e.upBias, r.ids))
	}
	act := e.act
	if r.wrong("another activation for the last expert") {
		mask := r.op("Unsqueeze", r.op("Equal", r.ids, r.ints(int64(r.experts-1))), r.ints(-1))
		h = r.op("Where", mask, r.op("Tanh", h), h)
	}
	a := r.activate(e, h, 3, act)
	ids := r.ids
	if r.outside("down products of the next expert") {
		ids = r.op("Mod", r.op("Add", ids, r.ints(1)), r.ints(int64(r.experts)))
	}
	if e.bias && r.wrong("weights before a down product with a bias") {
		a = r.op("Mul", a, r.op("Unsqueeze", r.weightsOf(), r.ints(-1)))
		y := r.add(r.times(a, of(e.down, ids), e.inOut), of(e.downBias, ids))
		return []*onnx.Value{r.reduce("ReduceSum", y, []int64{1}, false)}
	}
	y := r.times(a, of(e.down, ids), e.inOut)
	if e.bias {
		y = r.add(y, of(e.downBias, ids))
	}
	return r.finish(y)
}

// weightsOf gives the weights in the graph's type.
func (r *routed) weightsOf() *onnx.Value {
	if r.half() {
		return r.cast(r.weights, r.typ)
	}
	return r.weights
}

// finish weights and adds outputs [T, k, hidden].
func (r *routed) finish(y *onnx.Value) []*onnx.Value {
	switch {
	case r.wrong("outputs normed"):
		y = r.op("Div", y, r.op("Add", r.reduce("ReduceL2", y, []int64{2}, true), r.floats(r.typ, []int{}, []float64{1})))
	case r.k > 1 && r.wrong("the greatest output"):
		y = r.op("Mul", y, r.op("Unsqueeze", r.weightsOf(), r.ints(-1)))
		return []*onnx.Value{r.reduce("ReduceMax", y, []int64{1}, false)}
	case r.wrong("magnitude of the outputs"):
		y = r.op("Abs", y)
	}
	if r.half() && r.chance(2) { // added up in float32
		return []*onnx.Value{r.cast(r.combine(r.cast(y, onnx.Float), onnx.Float), r.typ)}
	}
	return []*onnx.Value{r.combine(y, r.typ)}
}

// writeDense writes experts that all work on all tokens, each with weights of its own, and masks.
func writeDense(w *writer) []*onnx.Value {
	r := newRouted(w, false)
	e := r.newExpert()
	gate, form := r.gates(), r.r.Uint64()
	var y *onnx.Value
	for i := range r.experts {
		if i == r.experts-1 && r.wrong("the last expert missing") {
			continue
		}
		x := r.x
		if i == 1 && r.wrong("another input for an expert") {
			x = r.op("Add", x, r.floats(r.typ, []int{}, []float64{1}))
		}
		act := e.act
		if i == 2 && r.wrong("another activation for an expert") {
			act = map[string]string{"silu": "relu", "gelu": "silu", "relu": "silu"}[act]
		}
		h := r.linear(e, x, r.hidden, r.units(e))
		r.alike(form, func() { h = r.activate(e, h, 2, act) })
		one := r.linear(e, h, r.inner, r.hidden)
		if i == 0 && r.wrong("an expert counts twice") {
			one = r.op("Add", one, one)
		}
		one = r.product(one, gate(i))
		if y == nil {
			y = one
		} else {
			y = r.add(y, one)
		}
	}
	return []*onnx.Value{y}
}

// alike has f make the same choices whenever the form is the same: an exporter writes one expert as the other.
func (r *routed) alike(form uint64, f func()) {
	keep := r.r
	r.r = rand.New(rand.NewPCG(form, 0))
	f()
	r.r = keep
}

// linear multiplies rows with a matrix of its own, and adds a bias.
func (r *routed) linear(e *expert, x *onnx.Value, in, out int) *onnx.Value {
	if e.gemm {
		return r.op("Gemm", x, r.matrix(r.typ, out, in), r.matrix(r.typ, out), onnx.IntAttr("transB", 1))
	}
	y := r.op("MatMul", x, r.matrix(r.typ, in, out))
	if e.bias {
		y = r.add(y, r.matrix(r.typ, out))
	}
	return y
}

// gates gives for each expert the column [T, 1] of weights, 0 for tokens that did not choose it.
func (r *routed) gates() func(i int) *onnx.Value {
	weights := r.weightsOf()
	var all *onnx.Value // [T, experts]
	switch r.r.IntN(4) {
	case 0: // one_hot
		hot := r.op("OneHot", r.ids, r.ints(int64(r.experts)), r.floats(r.typ, []int{2}, []float64{0, 1}))
		all = r.reduce("ReduceSum", r.product(hot, r.op("Unsqueeze", weights, r.ints(-1))), []int64{1}, false)
	case 1: // scatter
		shape := r.op("Concat", r.op("Slice", r.op("Shape", r.ids), r.ints(0), r.ints(1)), r.ints(int64(r.experts)), onnx.IntAttr("axis", 0))
		zeros := r.op("Expand", r.floats(r.typ, []int{1}, []float64{0}), shape)
		all = r.op("ScatterElements", zeros, r.ids, weights, onnx.IntAttr("axis", 1))
	}
	if all != nil {
		if r.chance(4) {
			columns := channels{r.writer, 2, r.experts}.split(all, true, slices.Repeat([]int{1}, r.experts))
			return func(i int) *onnx.Value { return columns[i] }
		}
		return func(i int) *onnx.Value {
			if r.chance(3) {
				return r.op("Gather", all, r.ints(int64(i)), onnx.IntAttr("axis", r.lastAxis(2)))
			}
			return r.op("Slice", all, r.ints(int64(i)), r.ints(int64(i+1)), r.ints(r.lastAxis(2)))
		}
	}
	where := r.chance(2)
	return func(i int) *onnx.Value {
		mask := r.op("Equal", r.ids, r.constant(onnx.NewInt64s(fmt.Sprint("expert", i), []int64{int64(i)})))
		if where {
			mask = r.op("Where", mask, weights, r.floats(r.typ, []int{}, []float64{0}))
		} else {
			mask = r.product(r.cast(mask, r.typ), weights)
		}
		return r.reduce("ReduceSum", mask, []int64{1}, true)
	}
}
