package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// indexed writes experts that work only on the rows of their tokens.
type indexed struct {
	*routed
	weights *onnx.Value // of the choices, in the graph's type
	mask    *onnx.Value // [experts, k, T], 1 for chosen experts; nil if not made
	search  uint64      // the form of each expert's part
}

func newIndexed(r *routed) indexed {
	r.Empty = true
	x := indexed{routed: r, weights: r.weightsOf(), search: r.Rand.Uint64()}
	if r.Chance(3) {
		hot := r.Op("OneHot", r.ids, r.Ints(int64(r.experts)), r.Ints(0, 1))
		x.mask = r.Op("Transpose", hot, onnx.IntsAttr("perm", []int64{2, 1, 0}))
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
			e = x.Constant(writer.ScalarInt(int64(i.(int))))
		}
		where = x.Op("NonZero", x.Op("Gather", x.mask, e))
	case x.Chance(2):
		where = x.Op("NonZero", x.Op("Transpose", x.is(i), onnx.IntsAttr("perm", []int64{1, 0})))
	default:
		where, places = x.Op("NonZero", x.is(i)), 1
	}
	rows := func(at int) *onnx.Value { return x.Op("Gather", where, x.Constant(writer.ScalarInt(int64(at)))) }
	if x.Chance(3) {
		parts := x.Ops("Split", 2, where, x.Ints(1, 1), onnx.IntAttr("axis", 0))
		rows = func(at int) *onnx.Value { return x.Op("Squeeze", parts[at], x.Ints(0)) }
	}
	place, token = rows(places), rows(1-places)
	return place, token
}

// run sends the rows of its tokens through expert i, and weights the results.
func (x indexed) run(i any, expert func(rows *onnx.Value) *onnx.Value) (y, token *onnx.Value) {
	first := i == any(0) || x.loops(i)
	place, token := x.found(i)
	if first && x.wrong("no more than two tokens for an expert") {
		place = x.Op("Slice", place, x.Ints(0), x.Ints(2), x.Ints(0))
		token = x.Op("Slice", token, x.Ints(0), x.Ints(2), x.Ints(0))
	}
	read := token
	if first && x.wrong("rows of the next token for an expert") {
		tokens := x.Op("Squeeze", x.Op("Slice", x.Op("Shape", x.x), x.Ints(0), x.Ints(1)), x.Ints(0))
		read = x.Op("Mod", x.Op("Add", token, x.Ints(1)), tokens)
	}
	y = expert(x.Op("Gather", x.x, read))
	switch {
	case first && x.wrong("an expert without its weight"):
		return y, token
	case first && x.k > 1 && x.wrong("weights of the token's other choice for an expert"):
		place = x.Op("Sub", x.Ints(int64(x.k-1)), place)
	}
	var w *onnx.Value
	if x.Chance(3) {
		at := x.Op("Add", x.Op("Mul", token, x.Ints(int64(x.k))), place)
		w = x.Op("Gather", x.Op("Reshape", x.weights, x.Ints(-1)), at)
	} else {
		at := x.Op("Concat", x.Op("Unsqueeze", token, x.Ints(1)), x.Op("Unsqueeze", place, x.Ints(1)),
			onnx.IntAttr("axis", 1))
		w = x.Op("GatherND", x.weights, at)
	}
	return x.Product(y, x.Op("Unsqueeze", w, x.Ints(x.LastAxis(2)))), token
}

// loops reports whether i is a loop variable.
func (x indexed) loops(i any) bool { _, ok := i.(*onnx.Value); return ok }

// zeros returns the initial value of the experts' sum.
func (x indexed) zeros() *onnx.Value {
	if x.Chance(3) {
		return x.Op("Expand", x.Floats(x.Type, []int{}, []float64{0}), x.Op("Shape", x.x))
	}
	return x.Op("ConstantOfShape", x.Op("Shape", x.x), onnx.TensorAttr("value",
		writer.Tensor(x.Type, []int{1}, []float64{0})))
}

// scatter adds the rows of some tokens to y.
func (x indexed) scatter(y, token, rows *onnx.Value) *onnx.Value {
	index := x.Op("Unsqueeze", token, x.Ints(1))
	add := []any{onnx.StringAttr("reduction", "add")}
	if x.k > 1 && x.wrong("rows replaced by others") {
		add = nil
	}
	switch form := x.Rand.IntN(3); {
	case x.Opset < 16 && add != nil || form == 0:
		index = x.Op("Expand", index, x.Op("Shape", rows))
		if add == nil {
			return x.Op("ScatterElements", y, index, rows, onnx.IntAttr("axis", 0))
		}
		return x.add(y, x.Op("ScatterElements", x.zeros(), index, rows, onnx.IntAttr("axis", 0)))
	case form == 1:
		index = x.Op("Expand", index, x.Op("Shape", rows))
		return x.Op("ScatterElements", append([]any{y, index, rows, onnx.IntAttr("axis", 0)}, add...)...)
	}
	return x.Op("ScatterND", append([]any{y, index, rows}, add...)...)
}

// WriteIndexed writes experts one by one, each on the rows of its tokens.
func WriteIndexed(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e, form := r.newExpert(r.Chance(2)), r.Rand.Uint64()
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

// WriteBranches writes experts that run only if a token goes to them.
func WriteBranches(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e, form := r.newExpert(r.Chance(2)), r.Rand.Uint64()
	x := newIndexed(r)
	y := x.zeros()
	gate := r.gates(true)
	dense := r.Chance(3) // the expert runs on all tokens
	for i := range r.experts {
		some := r.anyToken(i)
		if i == 1 && r.wrong("an expert that runs only for many tokens") {
			hits := r.Reduce("ReduceSum", r.Cast(r.is(i), onnx.Int64), []int64{0, 1}, false)
			some = r.Op("Greater", hits, r.Constant(writer.ScalarInt(2)))
		}
		outer := r.Graph
		then, other := outer.NewSubgraph("then"), outer.NewSubgraph("else")
		x.alike(x.search, func() {
			r.Graph = then
			if dense {
				then.AddOutput(r.add(y, r.Product(r.each(e, form, r.x, i), gate(i))))
			} else {
				rows, token := x.run(i, func(rows *onnx.Value) *onnx.Value { return r.each(e, form, rows, i) })
				then.AddOutput(x.scatter(y, token, rows))
			}
		})
		r.Graph = other
		other.AddOutput(r.Op("Identity", y))
		r.Graph = outer
		y = r.Op("If", some, onnx.GraphAttr("then_branch", then), onnx.GraphAttr("else_branch", other))
	}
	return r.result(y)
}

// anyToken returns whether a token goes to expert i.
func (r *routed) anyToken(i any) *onnx.Value {
	hits := r.Cast(r.is(i), writer.Choose(r.Writer, onnx.Int64, onnx.Int32, onnx.Float))
	if r.Chance(2) {
		return r.Cast(r.Reduce("ReduceMax", hits, []int64{0, 1}, false), onnx.Bool)
	}
	sum := r.Reduce("ReduceSum", r.Cast(hits, onnx.Int64), []int64{0, 1}, false)
	return r.Op("Greater", sum, r.Constant(writer.ScalarInt(0)))
}
