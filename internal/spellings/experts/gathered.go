package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rowwise is experts whose weights are gathered for every choice: [T, k], or [T·k] if choices are on one axis.
type rowwise struct {
	*routed
	ids  *onnx.Value
	rank int // of the tokens: 3 or 2
}

// WriteGathered writes experts whose weights are gathered for every token.
func WriteGathered(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	g := rowwise{r, r.ids, 3}
	x := r.Op("Unsqueeze", r.x, r.Ints(1))
	switch {
	case r.Chance(2): // one axis for tokens and choices
		g.rank, g.ids = 2, r.Op("Reshape", r.ids, r.Ints(-1))
		x = r.Op("Reshape", r.repeated(x), r.Ints(-1, int64(r.hidden)))
	case r.Chance(2): // otherwise MatMul and Einsum broadcast it
		x = r.repeated(x)
	}
	e := r.newExpert(true)
	ids := g.ids
	a := r.hiddenOf(e, e.act, g.rank, func(l *linear) *onnx.Value {
		h := g.times(l, x, ids)
		if l == e.gate && r.wrong("another activation for the last expert") {
			mask := r.Op("Unsqueeze", r.Op("Equal", ids, r.Ints(int64(r.experts-1))), r.Ints(-1))
			h = r.Op("Where", mask, r.Op("Tanh", h), h)
		}
		return h
	})
	switch {
	case r.outside("down products of the next expert"):
		ids = r.Op("Mod", r.Op("Add", ids, r.Ints(1)), r.Ints(int64(r.experts)))
	case r.k > 1 && r.wrong("down products of the token's other expert"):
		ids = r.Op("Slice", r.ids, r.Ints(-1), r.Ints(-int64(r.k)-1), r.Ints(1), r.Ints(-1))
		if g.rank == 2 {
			ids = r.Op("Reshape", ids, r.Ints(-1))
		}
	case r.wrong("down products of the next token's experts"):
		ids = r.nextRow(ids)
	}
	if e.down.b != nil && r.wrong("weights before a down product with a bias") {
		return r.result(r.sumOf(g.times(e.down, r.Op("Mul", a, g.column(r.weightsOf())), ids)))
	}
	return r.result(r.finish(g.times(e.down, a, ids)))
}

// repeated repeats the rows [T, 1, hidden] k times.
func (r *routed) repeated(x *onnx.Value) *onnx.Value {
	if r.Chance(2) {
		return r.Op("Tile", x, r.Ints(1, int64(r.k), 1))
	}
	return r.Op("Expand", x, r.Ints(1, int64(r.k), 1))
}

// nextRow moves each row to its predecessor.
func (r *routed) nextRow(v *onnx.Value) *onnx.Value {
	rest := r.Op("Slice", v, r.Ints(1), r.Ints(1<<40), r.Ints(0))
	return r.Op("Concat", rest, r.Op("Slice", v, r.Ints(0), r.Ints(1), r.Ints(0)), onnx.IntAttr("axis", 0))
}

// column adds an axis for the channels to numbers [T, k], after the axes of the choices.
func (g rowwise) column(v *onnx.Value) *onnx.Value {
	if g.rank == 2 {
		return g.Op("Reshape", v, g.Ints(-1, 1))
	}
	return g.Op("Unsqueeze", v, g.Ints(-1))
}

// gathered returns the chosen experts' parts of a stack.
func (g rowwise) gathered(stack, ids *onnx.Value) *onnx.Value {
	if g.Chance(3) {
		return g.Op("GatherND", stack, g.Op("Unsqueeze", ids, g.Ints(-1)))
	}
	return g.Op("Gather", stack, ids)
}

// times multiplies each row of x by the matrix of its expert, and adds the bias.
func (g rowwise) times(l *linear, x, ids *onnx.Value) *onnx.Value {
	y := g.multiplied(x, g.gathered(l.w, ids), l.inOut)
	if l.b != nil {
		y = g.add(y, g.gathered(l.b, ids))
	}
	return y
}

func (g rowwise) multiplied(x, matrices *onnx.Value, inOut bool) *onnx.Value {
	rows := map[int]string{2: "r", 3: "tk"}[g.rank]
	if g.Chance(3) {
		equation := rows + "n," + rows + map[bool]string{false: "mn", true: "nm"}[inOut] + "->" + rows + "m"
		return g.Op("Einsum", x, matrices, onnx.StringAttr("equation", equation))
	}
	if inOut == g.Chance(4) { // transposed
		perm := []int64{0, 1, 3, 2}
		if g.rank == 2 {
			perm = []int64{0, 2, 1}
		}
		matrices, inOut = g.Op("Transpose", matrices, onnx.IntsAttr("perm", perm)), !inOut
	}
	rank := int64(g.rank)
	if inOut {
		at := writer.Choose(g.Writer, rank-1, -2)
		return g.Op("Squeeze", g.Op("MatMul", g.Op("Unsqueeze", x, g.Ints(at)), matrices), g.Ints(at))
	}
	at := writer.Choose(g.Writer, rank, -1)
	return g.Op("Squeeze", g.Op("MatMul", matrices, g.Op("Unsqueeze", x, g.Ints(at))), g.Ints(at))
}

// sumOf sums the rows [T, k, hidden] or [T·k, hidden] of each token.
func (r *routed) sumOf(y *onnx.Value) *onnx.Value {
	if r.Chance(2) { // rows of one axis; more axes may be written down again
		y = r.Op("Reshape", y, r.Ints(-1, int64(r.k), int64(r.hidden)))
	} else {
		y = r.Op("Reshape", y, r.Op("Concat", r.Op("Shape", r.ids), r.Ints(int64(r.hidden)), onnx.IntAttr("axis", 0)))
	}
	return r.Reduce("ReduceSum", y, []int64{1}, false)
}

// finish weights and sums the outputs of all choices, [T, k, hidden] or [T·k, hidden].
func (r *routed) finish(y *onnx.Value) *onnx.Value {
	weights := r.weights
	switch {
	case r.wrong("outputs normed"):
		y = r.Op("Div", y, r.Op("Add", r.Reduce("ReduceL2", y, []int64{-1}, true),
			r.Floats(r.Type, []int{}, []float64{1})))
	case r.wrong("magnitude of the outputs"):
		y = r.Op("Abs", y)
	case r.outside("weights of the next token"):
		weights = r.nextRow(weights)
	case r.k > 1 && r.outside("weights in the other order"):
		weights = r.Op("Slice", weights, r.Ints(-1), r.Ints(-int64(r.k)-1), r.Ints(1), r.Ints(-1))
	case r.k > 1 && r.outside("the first choice without its weight"):
		hot := make([]int64, r.k)
		hot[0] = 1
		first := r.bools(hot...)
		weights = r.Op("Where", first, r.Floats(onnx.Float, []int{}, []float64{1}), weights)
	}
	y = r.Op("Reshape", y, r.Ints(-1, int64(r.k), int64(r.hidden)))
	if r.k > 1 && r.wrong("the greatest output") {
		y = r.Op("Mul", y, r.Op("Unsqueeze", r.Cast(weights, r.Type), r.Ints(-1)))
		return r.Reduce("ReduceMax", y, []int64{1}, false)
	}
	if r.Half() && r.Chance(2) { // summed in float32
		return r.Cast(r.combine(r.Cast(y, onnx.Float), weights, onnx.Float), r.Type)
	}
	return r.combine(y, weights, r.Type)
}
