package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// indexed writes experts that work only on the rows of their tokens.
type indexed struct {
	*routed
	weights *onnx.Value // of the choices, in the graph's type
	mask    *onnx.Value // [experts, k, T], 1 for chosen experts; nil if not made
	search  uint64      // the form of each expert's part
}

func newIndexed(r *routed) indexed {
	r.empty = true
	x := indexed{routed: r, weights: r.weightsOf(), search: r.r.Uint64()}
	if r.chance(3) {
		hot := r.op("OneHot", r.ids, r.ints(int64(r.experts)), r.ints(0, 1))
		x.mask = r.op("Transpose", hot, onnx.IntsAttr("perm", []int64{2, 1, 0}))
	}
	return x
}

// found returns the tokens that chose expert i, and the places of i in their lists.
func (x indexed) found(i any) (place, token *onnx.Value) {
	var where *onnx.Value
	places := 0
	switch {
	case x.mask != nil:
		e, ok := i.(*onnx.Value)
		if !ok {
			e = x.constant(scalarInt(int64(i.(int))))
		}
		where = x.op("NonZero", x.op("Gather", x.mask, e))
	case x.chance(2):
		where = x.op("NonZero", x.op("Transpose", x.is(i), onnx.IntsAttr("perm", []int64{1, 0})))
	default:
		where, places = x.op("NonZero", x.is(i)), 1
	}
	rows := func(at int) *onnx.Value { return x.op("Gather", where, x.constant(scalarInt(int64(at)))) }
	if x.chance(3) {
		parts := x.ops("Split", 2, where, x.ints(1, 1), onnx.IntAttr("axis", 0))
		rows = func(at int) *onnx.Value { return x.op("Squeeze", parts[at], x.ints(0)) }
	}
	place, token = rows(places), rows(1-places)
	return place, token
}

// run sends the rows of its tokens through expert i, and weights the results.
func (x indexed) run(i any, expert func(rows *onnx.Value) *onnx.Value) (y, token *onnx.Value) {
	first := i == any(0) || x.loops(i)
	place, token := x.found(i)
	if first && x.wrong("no more than two tokens for an expert") {
		place = x.op("Slice", place, x.ints(0), x.ints(2), x.ints(0))
		token = x.op("Slice", token, x.ints(0), x.ints(2), x.ints(0))
	}
	read := token
	if first && x.wrong("rows of the next token for an expert") {
		tokens := x.op("Squeeze", x.op("Slice", x.op("Shape", x.x), x.ints(0), x.ints(1)), x.ints(0))
		read = x.op("Mod", x.op("Add", token, x.ints(1)), tokens)
	}
	y = expert(x.op("Gather", x.x, read))
	switch {
	case first && x.wrong("an expert without its weight"):
		return y, token
	case first && x.k > 1 && x.wrong("weights of the token's other choice for an expert"):
		place = x.op("Sub", x.ints(int64(x.k-1)), place)
	}
	var w *onnx.Value
	if x.chance(3) {
		at := x.op("Add", x.op("Mul", token, x.ints(int64(x.k))), place)
		w = x.op("Gather", x.op("Reshape", x.weights, x.ints(-1)), at)
	} else {
		at := x.op("Concat", x.op("Unsqueeze", token, x.ints(1)), x.op("Unsqueeze", place, x.ints(1)),
			onnx.IntAttr("axis", 1))
		w = x.op("GatherND", x.weights, at)
	}
	return x.product(y, x.op("Unsqueeze", w, x.ints(x.lastAxis(2)))), token
}

// loops reports whether i is a loop variable.
func (x indexed) loops(i any) bool { _, ok := i.(*onnx.Value); return ok }

// zeros returns the initial value of the experts' sum.
func (x indexed) zeros() *onnx.Value {
	if x.chance(3) {
		return x.op("Expand", x.floats(x.typ, []int{}, []float64{0}), x.op("Shape", x.x))
	}
	return x.op("ConstantOfShape", x.op("Shape", x.x), onnx.TensorAttr("value", tensor(x.typ, []int{1}, []float64{0})))
}

// scatter adds the rows of some tokens to y.
func (x indexed) scatter(y, token, rows *onnx.Value) *onnx.Value {
	index := x.op("Unsqueeze", token, x.ints(1))
	add := []any{onnx.StringAttr("reduction", "add")}
	if x.k > 1 && x.wrong("rows replaced by others") {
		add = nil
	}
	switch form := x.r.IntN(3); {
	case x.opset < 16 && add != nil || form == 0:
		index = x.op("Expand", index, x.op("Shape", rows))
		if add == nil {
			return x.op("ScatterElements", y, index, rows, onnx.IntAttr("axis", 0))
		}
		return x.add(y, x.op("ScatterElements", x.zeros(), index, rows, onnx.IntAttr("axis", 0)))
	case form == 1:
		index = x.op("Expand", index, x.op("Shape", rows))
		return x.op("ScatterElements", append([]any{y, index, rows, onnx.IntAttr("axis", 0)}, add...)...)
	}
	return x.op("ScatterND", append([]any{y, index, rows}, add...)...)
}

// writeIndexed writes experts one by one, each on the rows of its tokens.
func writeIndexed(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e, form := r.newExpert(r.chance(2)), r.r.Uint64()
	x := newIndexed(r)
	y := x.zeros()
	for i := range r.experts {
		if i == r.experts-1 && r.wrong("the last expert missing") {
			continue
		}
		x.alike(x.search, func() {
			rows, token := x.run(i, func(rows *onnx.Value) *onnx.Value { return r.each(e, form, rows, i) })
			y = x.scatter(y, token, rows)
		})
	}
	return r.result(y)
}

// writeBranches writes experts that run only if a token goes to them.
func writeBranches(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e, form := r.newExpert(r.chance(2)), r.r.Uint64()
	x := newIndexed(r)
	y := x.zeros()
	gate := r.gates(true)
	dense := r.chance(3) // the expert runs on all tokens
	for i := range r.experts {
		some := r.anyToken(i)
		if i == 1 && r.wrong("an expert that runs only for many tokens") {
			hits := r.reduce("ReduceSum", r.cast(r.is(i), onnx.Int64), []int64{0, 1}, false)
			some = r.op("Greater", hits, r.constant(scalarInt(2)))
		}
		outer := r.g
		then, other := outer.NewSubgraph("then"), outer.NewSubgraph("else")
		x.alike(x.search, func() {
			r.g = then
			if dense {
				then.AddOutput(r.add(y, r.product(r.each(e, form, r.x, i), gate(i))))
			} else {
				rows, token := x.run(i, func(rows *onnx.Value) *onnx.Value { return r.each(e, form, rows, i) })
				then.AddOutput(x.scatter(y, token, rows))
			}
		})
		r.g = other
		other.AddOutput(r.op("Identity", y))
		r.g = outer
		y = r.op("If", some, onnx.GraphAttr("then_branch", then), onnx.GraphAttr("else_branch", other))
	}
	return r.result(y)
}

// anyToken returns whether a token goes to expert i.
func (r *routed) anyToken(i any) *onnx.Value {
	hits := r.cast(r.is(i), choose(r.writer, onnx.Int64, onnx.Int32, onnx.Float))
	if r.chance(2) {
		return r.cast(r.reduce("ReduceMax", hits, []int64{0, 1}, false), onnx.Bool)
	}
	sum := r.reduce("ReduceSum", r.cast(hits, onnx.Int64), []int64{0, 1}, false)
	return r.op("Greater", sum, r.constant(scalarInt(0)))
}
