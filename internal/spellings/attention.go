package spellings

import (
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// attention is an attention block as written.
type attention struct {
	*writer
	heads, keyHeads, width int
	cap, sink              bool
	bias                   *onnx.Value // nil without a bias
	window                 int
	around                 bool // the window extends to both sides
	scale                  float64
	factors                bool   // of each head's scores
	order                  string // of the dimensions of scores: b, h, i for queries, j for keys
}

// writeAttention writes attention of heads that may share keys, with a mask, and with or without a cache.
func writeAttention(w *writer) []*onnx.Value {
	w.alone, w.square = true, false
	if w.typ == onnx.Float16 { // its least number is not a minimum without rounding
		w.typ = onnx.Float
	}
	a := &attention{writer: w, heads: 4, keyHeads: choose(w, 1, 2, 2, 4), width: choose(w, 4, 8),
		scale: choose(w, 0.5, 0.25, 1.25), cap: w.chance(5), sink: w.chance(5)}
	if w.chance(3) {
		a.window = choose(w, 2, 3, 20)
		a.around = w.chance(4)
	}
	a.factors = !a.cap && w.chance(6)
	a.order = usualOrder
	if !a.sink && w.chance(4) {
		a.order = choose(w, "bihj", "hbij", "bhji", "ijbh")
	}
	batch, queries, past := dim{"batch", 2}, dim{"queries", 5}, dim{"past", 3}
	rowsFirst := [3]bool{w.chance(2), w.chance(2), w.chance(2)}
	heads := func(i, n int) []dim {
		if rowsFirst[i] {
			return []dim{batch, queries, {"", n}, {"", a.width}}
		}
		return []dim{batch, {"", n}, queries, {"", a.width}}
	}
	keys := queries
	cached := w.chance(2)
	if cached {
		keys = dim{"past + queries", queries.size + past.size}
	}
	in := []*onnx.Value{w.input("q", w.typ, heads(0, a.heads)), w.input("k", w.typ, heads(1, a.keyHeads)),
		w.input("v", w.typ, heads(2, a.keyHeads))}
	if cached {
		for _, name := range []string{"past_k", "past_v"} {
			in = append(in, w.input(name, w.typ, []dim{batch, {"", a.keyHeads}, past, {"", a.width}}))
		}
	}
	biased := w.chance(4)
	if biased {
		in = append(in, w.input("bias", w.typ, []dim{choose(w, batch, dim{"", 1}), {"", a.heads}, queries, keys}))
	}
	in = w.enter(append(in, w.input("mask", onnx.Int64, []dim{batch, keys}))...)
	if biased {
		a.bias = in[len(in)-2]
	}
	for i, first := range rowsFirst {
		if first {
			in[i] = w.op("Transpose", in[i], onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
	q, k, v := in[0], in[1], in[2]
	if cached {
		k = w.op("Concat", in[3], k, onnx.IntAttr("axis", choose[int64](w, 2, -2)))
		v = w.op("Concat", in[4], v, onnx.IntAttr("axis", choose[int64](w, 2, -2)))
	}
	p := a.weights(a.scores(q, k), a.allowed(q, k, in[len(in)-1]))
	var y *onnx.Value
	if a.order != usualOrder {
		y = w.op("Einsum", p, a.eachHead(v), onnx.StringAttr("equation", a.order+",bhjd->bhid"))
	} else {
		y = w.op("MatMul", p, a.repeated(v))
	}
	if w.chance(2) {
		y = w.op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		if w.chance(2) {
			y = w.op("Reshape", y, w.ints(0, 0, -1))
		}
	}
	if cached {
		return []*onnx.Value{y, k, v}
	}
	return []*onnx.Value{y}
}

// usualOrder is the order of products by MatMul.
const usualOrder = "bhij"

// ordered transposes a bias or mask to the order of the scores.
func (a *attention) ordered(v *onnx.Value) *onnx.Value {
	if a.order == usualOrder {
		return v
	}
	perm := make([]int64, len(a.order))
	for i, letter := range a.order {
		perm[i] = int64(strings.IndexRune(usualOrder, letter))
	}
	return a.op("Transpose", v, onnx.IntsAttr("perm", perm))
}

// eachHead repeats values for products that do not broadcast.
func (a *attention) eachHead(v *onnx.Value) *onnx.Value {
	var list []int64
	for h := range a.heads {
		list = append(list, int64(h/(a.heads/a.keyHeads)))
	}
	return a.op("Gather", v, a.ints(list...), onnx.IntAttr("axis", 1))
}

// repeated repeats heads of keys or values for the heads of queries.
func (a *attention) repeated(v *onnx.Value) *onnx.Value {
	n := a.heads / a.keyHeads
	if n == 1 || a.keyHeads == 1 && a.chance(2) { // the product broadcasts
		return v
	}
	switch a.r.IntN(3) {
	case 0:
		var list []int64
		for h := range a.heads {
			list = append(list, int64(h/n))
		}
		return a.op("Gather", v, a.ints(list...), onnx.IntAttr("axis", 1))
	case 1:
		wide := a.op("Expand", a.op("Unsqueeze", v, a.ints(2)), a.ints(1, 1, int64(n), 1, 1))
		return a.op("Reshape", wide, a.ints(0, int64(a.heads), -1, int64(a.width)))
	}
	tiled := a.op("Tile", a.op("Unsqueeze", v, a.ints(2)), a.ints(1, 1, int64(n), 1, 1))
	return a.op("Reshape", tiled, a.ints(0, int64(a.heads), -1, int64(a.width)))
}

// scores multiplies queries with keys and scales.
func (a *attention) scores(q, k *onnx.Value) *onnx.Value {
	scale, after := a.scale, 1.0
	switch a.r.IntN(4) {
	case 0:
		q = a.op("Mul", q, a.scalar(a.typ, scale))
	case 1:
		q = a.op("Mul", q, a.scalar(a.typ, math.Sqrt(scale)))
		k = a.op("Div", k, a.scalar(a.typ, 1/math.Sqrt(scale)))
	default:
		after = scale
	}
	var s *onnx.Value
	if a.order != usualOrder {
		s = a.op("Einsum", q, a.eachHead(k), onnx.StringAttr("equation", "bhid,bhjd->"+a.order))
	} else if k = a.repeated(k); a.chance(4) && a.heads == a.keyHeads {
		s = a.op("Einsum", q, k, onnx.StringAttr("equation", "bhid,bhjd->bhij"))
	} else {
		s = a.op("MatMul", q, a.op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	}
	if after != 1 && a.chance(2) {
		s = a.op("Div", s, a.scalar(a.typ, 1/after))
	} else if after != 1 {
		s = a.product(s, a.scalar(a.typ, after))
	}
	switch {
	case a.wrong("magnitudes of the scores"):
		s = a.op("Abs", s)
	case a.wrong("squares of the scores"):
		s = a.op("Mul", s, s)
	case !a.cap && a.wrong("scores clipped far out"):
		s = a.op("Max", s, a.scalar(a.typ, -5000))
	case a.wrong("scores clipped on one side"):
		s = a.op("Max", s, a.scalar(a.typ, -0.25))
	}
	if a.factors {
		c := a.floats(a.typ, []int{1, a.heads, 1, 1}, []float64{0.5, 1.25, 2, 0.75})
		s = a.op("Mul", s, a.ordered(c))
	}
	if a.cap {
		s = a.product(a.op("Tanh", a.op("Div", s, a.scalar(a.typ, 4))), a.scalar(a.typ, 4))
	}
	if a.bias != nil {
		s = a.sum(s, a.ordered(a.bias))
	}
	return s
}

// allowed returns which keys a query can attend to.
func (a *attention) allowed(q, k, exists *onnx.Value) *onnx.Value {
	number := func(v *onnx.Value) *onnx.Value {
		return a.op("Squeeze", a.op("Slice", a.op("Shape", v), a.ints(2), a.ints(3)), a.ints(0))
	}
	zero, one := a.integer(0), a.integer(1)
	queries, keys := number(q), number(k)
	i := a.op("Add", a.op("Range", zero, queries, one), a.op("Sub", keys, queries))
	i, j := a.op("Unsqueeze", i, a.ints(1)), a.op("Unsqueeze", a.op("Range", zero, keys, one), a.ints(0))
	var sees *onnx.Value
	switch a.r.IntN(3) {
	case 0:
		sees = a.op("LessOrEqual", j, i)
	case 1:
		sees = a.op("Not", a.op("Greater", j, i))
	default:
		sees = a.op("GreaterOrEqual", a.op("Sub", i, j), a.integer(0))
	}
	if a.around {
		sees = a.op("LessOrEqual", a.op("Abs", a.op("Sub", i, j)), a.integer(int64(a.window)))
	} else if a.window > 0 {
		sees = a.op("And", sees, a.op("Greater", j, a.op("Sub", i, a.integer(int64(a.window)))))
	}
	padded := a.op("Unsqueeze", exists, a.ints(1, 2))
	if a.chance(2) {
		return a.op("And", sees, a.cast(padded, onnx.Bool))
	}
	return a.op("And", a.op("Not", a.op("Equal", padded, a.integer(0))), sees)
}

func (a *attention) integer(x int64) *onnx.Value {
	c := onnx.NewInt64s("c", []int64{x})
	c.Dims = []int64{}
	return a.constant(c)
}

// weights masks the scores and applies a softmax.
func (a *attention) weights(s, allowed *onnx.Value) *onnx.Value {
	least := -greatest[a.typ]
	if a.chance(3) {
		least = math.Inf(-1)
	}
	allowed = a.ordered(allowed)
	axis := int64(strings.IndexByte(a.order, 'j'))
	if a.order == usualOrder {
		axis = choose[int64](a.writer, -1, 3)
	}
	switch {
	case a.wrong("mask as a factor"):
		s = a.op("Mul", s, a.cast(allowed, a.typ))
	case a.wrong("mask before a cap"):
		s = a.op("Where", allowed, s, a.scalar(a.typ, -1e9))
		s = a.op("Mul", a.op("Tanh", s), a.scalar(a.typ, 2))
	case !a.sink && !a.factors && a.scale*float64(a.width) <= 2 && a.chance(3): // otherwise they underflow
		return a.masked(s, allowed, axis)
	case a.chance(2):
		s = a.op("Where", allowed, s, a.scalar(a.typ, least))
	default:
		s = a.sum(s, a.op("Where", allowed, a.scalar(a.typ, 0), a.scalar(a.typ, least)))
	}
	if a.wrong("softmax over the queries") {
		axis = int64(strings.IndexByte(a.order, 'i'))
	} else if a.sink {
		return a.withSink(s)
	}
	p := a.softmax(s, axis)
	switch {
	case a.wrong("squares of the weights"):
		p = a.op("Mul", p, p)
	case a.wrong("half of the weights"):
		p = a.op("Mul", p, a.scalar(a.typ, 0.5))
	case a.wrong("sigmoids instead of weights"):
		p = a.op("Sigmoid", s)
	}
	if math.IsInf(least, -1) {
		p = a.op("Where", a.op("IsNaN", p), a.scalar(a.typ, 0), p)
	}
	return p
}

// masked multiplies the exponentials by the mask.
func (a *attention) masked(s, allowed *onnx.Value, axis int64) *onnx.Value {
	mask := a.cast(allowed, a.typ)
	e := a.op("Exp", a.op("Sub", s, a.reduce("ReduceMax", s, []int64{axis}, true)))
	if a.wrong("mask after the sum") {
		return a.op("Mul", a.op("Div", e, a.reduce("ReduceSum", e, []int64{axis}, true)), mask)
	}
	e = a.op("Mul", e, mask)
	p := a.op("Div", e, a.reduce("ReduceSum", e, []int64{axis}, true))
	return a.op("Where", a.op("IsNaN", p), a.scalar(a.typ, 0), p)
}

func (a *attention) softmax(s *onnx.Value, axis int64) *onnx.Value {
	if a.chance(3) {
		s = a.op("Sub", s, a.reduce("ReduceMax", s, []int64{axis}, true))
		if a.chance(2) {
			e := a.op("Exp", s)
			return a.op("Div", e, a.reduce("ReduceSum", e, []int64{axis}, true))
		}
	}
	return a.op("Softmax", s, onnx.IntAttr("axis", axis))
}

// withSink adds a column to the scores that takes a share of the weights and contributes nothing.
func (a *attention) withSink(s *onnx.Value) *onnx.Value {
	values := make([]float64, a.heads)
	for h := range values {
		values[h] = float64(h) - 1
	}
	shape := a.op("Concat", a.op("Slice", a.op("Shape", s), a.ints(0), a.ints(3)), a.ints(1), onnx.IntAttr("axis", 0))
	column := a.op("Expand", a.floats(a.typ, []int{1, a.heads, 1, 1}, values), shape)
	p := a.softmax(a.op("Concat", s, column, onnx.IntAttr("axis", -1)), -1)
	if a.wrong("the first column dropped") {
		return a.op("Slice", p, a.ints(1), a.ints(math.MaxInt64), a.ints(3))
	}
	return a.op("Slice", p, a.ints(0), a.ints(-1), a.ints(3))
}
