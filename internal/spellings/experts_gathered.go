package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// rowwise is experts whose weights are gathered for every choice: [T, k], or [T·k] if choices are on one axis.
type rowwise struct {
	*routed
	ids  *onnx.Value
	rank int // of the tokens: 3 or 2
}

// writeGathered writes experts whose weights are gathered for every token.
func writeGathered(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	g := rowwise{r, r.ids, 3}
	x := r.op("Unsqueeze", r.x, r.ints(1))
	switch {
	case r.chance(2): // one axis for tokens and choices
		g.rank, g.ids = 2, r.op("Reshape", r.ids, r.ints(-1))
		x = r.op("Reshape", r.repeated(x), r.ints(-1, int64(r.hidden)))
	case r.chance(2): // otherwise MatMul and Einsum broadcast it
		x = r.repeated(x)
	}
	e := r.newExpert(true)
	ids := g.ids
	a := r.hiddenOf(e, e.act, g.rank, func(l *linear) *onnx.Value {
		h := g.times(l, x, ids)
		if l == e.gate && r.wrong("another activation for the last expert") {
			mask := r.op("Unsqueeze", r.op("Equal", ids, r.ints(int64(r.experts-1))), r.ints(-1))
			h = r.op("Where", mask, r.op("Tanh", h), h)
		}
		return h
	})
	switch {
	case r.outside("down products of the next expert"):
		ids = r.op("Mod", r.op("Add", ids, r.ints(1)), r.ints(int64(r.experts)))
	case r.k > 1 && r.wrong("down products of the token's other expert"):
		ids = r.op("Slice", r.ids, r.ints(-1), r.ints(-int64(r.k)-1), r.ints(1), r.ints(-1))
		if g.rank == 2 {
			ids = r.op("Reshape", ids, r.ints(-1))
		}
	case r.wrong("down products of the next token's experts"):
		ids = r.nextRow(ids)
	}
	if e.down.b != nil && r.wrong("weights before a down product with a bias") {
		return r.result(r.sumOf(g.times(e.down, r.op("Mul", a, g.column(r.weightsOf())), ids)))
	}
	return r.result(r.finish(g.times(e.down, a, ids)))
}

// repeated repeats the rows [T, 1, hidden] k times.
func (r *routed) repeated(x *onnx.Value) *onnx.Value {
	if r.chance(2) {
		return r.op("Tile", x, r.ints(1, int64(r.k), 1))
	}
	return r.op("Expand", x, r.ints(1, int64(r.k), 1))
}

// nextRow moves each row to its predecessor.
func (r *routed) nextRow(v *onnx.Value) *onnx.Value {
	rest := r.op("Slice", v, r.ints(1), r.ints(1<<40), r.ints(0))
	return r.op("Concat", rest, r.op("Slice", v, r.ints(0), r.ints(1), r.ints(0)), onnx.IntAttr("axis", 0))
}

// column adds an axis for the channels to numbers [T, k], after the axes of the choices.
func (g rowwise) column(v *onnx.Value) *onnx.Value {
	if g.rank == 2 {
		return g.op("Reshape", v, g.ints(-1, 1))
	}
	return g.op("Unsqueeze", v, g.ints(-1))
}

// gathered returns the chosen experts' parts of a stack.
func (g rowwise) gathered(stack, ids *onnx.Value) *onnx.Value {
	if g.chance(3) {
		return g.op("GatherND", stack, g.op("Unsqueeze", ids, g.ints(-1)))
	}
	return g.op("Gather", stack, ids)
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
	if g.chance(3) {
		equation := rows + "n," + rows + map[bool]string{false: "mn", true: "nm"}[inOut] + "->" + rows + "m"
		return g.op("Einsum", x, matrices, onnx.StringAttr("equation", equation))
	}
	if inOut == g.chance(4) { // transposed
		perm := []int64{0, 1, 3, 2}
		if g.rank == 2 {
			perm = []int64{0, 2, 1}
		}
		matrices, inOut = g.op("Transpose", matrices, onnx.IntsAttr("perm", perm)), !inOut
	}
	rank := int64(g.rank)
	if inOut {
		at := choose(g.writer, rank-1, -2)
		return g.op("Squeeze", g.op("MatMul", g.op("Unsqueeze", x, g.ints(at)), matrices), g.ints(at))
	}
	at := choose(g.writer, rank, -1)
	return g.op("Squeeze", g.op("MatMul", matrices, g.op("Unsqueeze", x, g.ints(at))), g.ints(at))
}

// sumOf sums the rows [T, k, hidden] or [T·k, hidden] of each token.
func (r *routed) sumOf(y *onnx.Value) *onnx.Value {
	if r.chance(2) { // rows of one axis; more axes may be written down again
		y = r.op("Reshape", y, r.ints(-1, int64(r.k), int64(r.hidden)))
	} else {
		y = r.op("Reshape", y, r.op("Concat", r.op("Shape", r.ids), r.ints(int64(r.hidden)), onnx.IntAttr("axis", 0)))
	}
	return r.reduce("ReduceSum", y, []int64{1}, false)
}

// finish weights and sums the outputs of all choices, [T, k, hidden] or [T·k, hidden].
func (r *routed) finish(y *onnx.Value) *onnx.Value {
	weights := r.weights
	switch {
	case r.wrong("outputs normed"):
		y = r.op("Div", y, r.op("Add", r.reduce("ReduceL2", y, []int64{-1}, true),
			r.floats(r.typ, []int{}, []float64{1})))
	case r.wrong("magnitude of the outputs"):
		y = r.op("Abs", y)
	case r.outside("weights of the next token"):
		weights = r.nextRow(weights)
	case r.k > 1 && r.outside("weights in the other order"):
		weights = r.op("Slice", weights, r.ints(-1), r.ints(-int64(r.k)-1), r.ints(1), r.ints(-1))
	case r.k > 1 && r.outside("the first choice without its weight"):
		hot := make([]int64, r.k)
		hot[0] = 1
		first := r.bools(hot...)
		weights = r.op("Where", first, r.floats(onnx.Float, []int{}, []float64{1}), weights)
	}
	y = r.op("Reshape", y, r.ints(-1, int64(r.k), int64(r.hidden)))
	if r.k > 1 && r.wrong("the greatest output") {
		y = r.op("Mul", y, r.op("Unsqueeze", r.cast(weights, r.typ), r.ints(-1)))
		return r.reduce("ReduceMax", y, []int64{1}, false)
	}
	if r.half() && r.chance(2) { // summed in float32
		return r.cast(r.combine(r.cast(y, onnx.Float), weights, onnx.Float), r.typ)
	}
	return r.combine(y, weights, r.typ)
}
