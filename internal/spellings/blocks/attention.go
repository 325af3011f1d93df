package blocks

import (
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attention is an attention block as written.
type attention struct {
	*writer.Writer
	heads, keyHeads, width int
	cap, sink              bool
	bias                   *onnx.Value // nil without a bias
	window                 int
	around                 bool // the window extends to both sides
	scale                  float64
	factors                bool   // of each head's scores
	order                  string // of the dimensions of scores: b, h, i for queries, j for keys
}

// WriteAttention writes attention of heads that may share keys, with a mask, and with or without a cache.
func WriteAttention(w *writer.Writer) []*onnx.Value {
	w.Alone, w.Square = true, false
	if w.Type == onnx.Float16 { // its least number is not a minimum without rounding
		w.Type = onnx.Float
	}
	a := &attention{Writer: w, heads: 4, keyHeads: writer.Choose(w, 1, 2, 2, 4), width: writer.Choose(w, 4, 8),
		scale: writer.Choose(w, 0.5, 0.25, 1.25), cap: w.Chance(5), sink: w.Chance(5)}
	if w.Chance(3) {
		a.window = writer.Choose(w, 2, 3, 20)
		a.around = w.Chance(4)
	}
	a.factors = !a.cap && w.Chance(6)
	a.order = usualOrder
	if !a.sink && w.Chance(4) {
		a.order = writer.Choose(w, "bihj", "hbij", "bhji", "ijbh")
	}
	batch, queries, past := writer.Dim{Name: "batch", Size: 2}, writer.Dim{Name: "queries",
		Size: 5}, writer.Dim{Name: "past", Size: 3}
	rowsFirst := [3]bool{w.Chance(2), w.Chance(2), w.Chance(2)}
	heads := func(i, n int) []writer.Dim {
		if rowsFirst[i] {
			return []writer.Dim{batch, queries, {Name: "", Size: n}, {Name: "", Size: a.width}}
		}
		return []writer.Dim{batch, {Name: "", Size: n}, queries, {Name: "", Size: a.width}}
	}
	keys := queries
	cached := w.Chance(2)
	if cached {
		keys = writer.Dim{Name: "past + queries", Size: queries.Size + past.Size}
	}
	in := []*onnx.Value{w.Input("q", w.Type, heads(0, a.heads)), w.Input("k", w.Type, heads(1, a.keyHeads)),
		w.Input("v", w.Type, heads(2, a.keyHeads))}
	if cached {
		for _, name := range []string{"past_k", "past_v"} {
			in = append(in, w.Input(name, w.Type, []writer.Dim{batch, {Name: "", Size: a.keyHeads}, past,
				{Name: "", Size: a.width}}))
		}
	}
	biased := w.Chance(4)
	if biased {
		in = append(in, w.Input("bias", w.Type, []writer.Dim{writer.Choose(w, batch, writer.Dim{Name: "", Size: 1}),
			{Name: "", Size: a.heads}, queries, keys}))
	}
	in = w.Enter(append(in, w.Input("mask", onnx.Int64, []writer.Dim{batch, keys}))...)
	if biased {
		a.bias = in[len(in)-2]
	}
	for i, first := range rowsFirst {
		if first {
			in[i] = w.Op("Transpose", in[i], onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
	q, k, v := in[0], in[1], in[2]
	if cached {
		k = w.Op("Concat", in[3], k, onnx.IntAttr("axis", writer.Choose[int64](w, 2, -2)))
		v = w.Op("Concat", in[4], v, onnx.IntAttr("axis", writer.Choose[int64](w, 2, -2)))
	}
	p := a.weights(a.scores(q, k), a.allowed(q, k, in[len(in)-1]))
	var y *onnx.Value
	if a.order != usualOrder {
		y = w.Op("Einsum", p, a.eachHead(v), onnx.StringAttr("equation", a.order+",bhjd->bhid"))
	} else {
		y = w.Op("MatMul", p, a.repeated(v))
	}
	if w.Chance(2) {
		y = w.Op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		if w.Chance(2) {
			y = w.Op("Reshape", y, w.Ints(0, 0, -1))
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
	return a.Op("Transpose", v, onnx.IntsAttr("perm", perm))
}

// eachHead repeats values for products that do not broadcast.
func (a *attention) eachHead(v *onnx.Value) *onnx.Value {
	var list []int64
	for h := range a.heads {
		list = append(list, int64(h/(a.heads/a.keyHeads)))
	}
	return a.Op("Gather", v, a.Ints(list...), onnx.IntAttr("axis", 1))
}

// repeated repeats heads of keys or values for the heads of queries.
func (a *attention) repeated(v *onnx.Value) *onnx.Value {
	n := a.heads / a.keyHeads
	if n == 1 || a.keyHeads == 1 && a.Chance(2) { // the product broadcasts
		return v
	}
	switch a.Rand.IntN(3) {
	case 0:
		var list []int64
		for h := range a.heads {
			list = append(list, int64(h/n))
		}
		return a.Op("Gather", v, a.Ints(list...), onnx.IntAttr("axis", 1))
	case 1:
		wide := a.Op("Expand", a.Op("Unsqueeze", v, a.Ints(2)), a.Ints(1, 1, int64(n), 1, 1))
		return a.Op("Reshape", wide, a.Ints(0, int64(a.heads), -1, int64(a.width)))
	}
	tiled := a.Op("Tile", a.Op("Unsqueeze", v, a.Ints(2)), a.Ints(1, 1, int64(n), 1, 1))
	return a.Op("Reshape", tiled, a.Ints(0, int64(a.heads), -1, int64(a.width)))
}

// scores multiplies queries with keys and scales.
func (a *attention) scores(q, k *onnx.Value) *onnx.Value {
	scale, after := a.scale, 1.0
	switch a.Rand.IntN(4) {
	case 0:
		q = a.Op("Mul", q, a.Scalar(a.Type, scale))
	case 1:
		q = a.Op("Mul", q, a.Scalar(a.Type, math.Sqrt(scale)))
		k = a.Op("Div", k, a.Scalar(a.Type, 1/math.Sqrt(scale)))
	default:
		after = scale
	}
	var s *onnx.Value
	if a.order != usualOrder {
		s = a.Op("Einsum", q, a.eachHead(k), onnx.StringAttr("equation", "bhid,bhjd->"+a.order))
	} else if k = a.repeated(k); a.Chance(4) && a.heads == a.keyHeads {
		s = a.Op("Einsum", q, k, onnx.StringAttr("equation", "bhid,bhjd->bhij"))
	} else {
		s = a.Op("MatMul", q, a.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	}
	if after != 1 && a.Chance(2) {
		s = a.Op("Div", s, a.Scalar(a.Type, 1/after))
	} else if after != 1 {
		s = a.Product(s, a.Scalar(a.Type, after))
	}
	switch {
	case a.Wrong("magnitudes of the scores"):
		s = a.Op("Abs", s)
	case a.Wrong("squares of the scores"):
		s = a.Op("Mul", s, s)
	case !a.cap && a.Wrong("scores clipped far out"):
		s = a.Op("Max", s, a.Scalar(a.Type, -5000))
	case a.Wrong("scores clipped on one side"):
		s = a.Op("Max", s, a.Scalar(a.Type, -0.25))
	}
	if a.factors {
		c := a.Floats(a.Type, []int{1, a.heads, 1, 1}, []float64{0.5, 1.25, 2, 0.75})
		s = a.Op("Mul", s, a.ordered(c))
	}
	if a.cap {
		s = a.Product(a.Op("Tanh", a.Op("Div", s, a.Scalar(a.Type, 4))), a.Scalar(a.Type, 4))
	}
	if a.bias != nil {
		s = a.Sum(s, a.ordered(a.bias))
	}
	return s
}

// allowed returns which keys a query can attend to.
func (a *attention) allowed(q, k, exists *onnx.Value) *onnx.Value {
	number := func(v *onnx.Value) *onnx.Value {
		return a.Op("Squeeze", a.Op("Slice", a.Op("Shape", v), a.Ints(2), a.Ints(3)), a.Ints(0))
	}
	zero, one := a.integer(0), a.integer(1)
	queries, keys := number(q), number(k)
	i := a.Op("Add", a.Op("Range", zero, queries, one), a.Op("Sub", keys, queries))
	i, j := a.Op("Unsqueeze", i, a.Ints(1)), a.Op("Unsqueeze", a.Op("Range", zero, keys, one), a.Ints(0))
	var sees *onnx.Value
	switch a.Rand.IntN(3) {
	case 0:
		sees = a.Op("LessOrEqual", j, i)
	case 1:
		sees = a.Op("Not", a.Op("Greater", j, i))
	default:
		sees = a.Op("GreaterOrEqual", a.Op("Sub", i, j), a.integer(0))
	}
	if a.around {
		sees = a.Op("LessOrEqual", a.Op("Abs", a.Op("Sub", i, j)), a.integer(int64(a.window)))
	} else if a.window > 0 {
		sees = a.Op("And", sees, a.Op("Greater", j, a.Op("Sub", i, a.integer(int64(a.window)))))
	}
	padded := a.Op("Unsqueeze", exists, a.Ints(1, 2))
	if a.Chance(2) {
		return a.Op("And", sees, a.Cast(padded, onnx.Bool))
	}
	return a.Op("And", a.Op("Not", a.Op("Equal", padded, a.integer(0))), sees)
}

func (a *attention) integer(x int64) *onnx.Value {
	c := onnx.NewInt64s("c", []int64{x})
	c.Dims = []int64{}
	return a.Constant(c)
}

// weights masks the scores and applies a softmax.
func (a *attention) weights(s, allowed *onnx.Value) *onnx.Value {
	least := -writer.Greatest[a.Type]
	if a.Chance(3) {
		least = math.Inf(-1)
	}
	allowed = a.ordered(allowed)
	axis := int64(strings.IndexByte(a.order, 'j'))
	if a.order == usualOrder {
		axis = writer.Choose[int64](a.Writer, -1, 3)
	}
	switch {
	case a.Wrong("mask as a factor"):
		s = a.Op("Mul", s, a.Cast(allowed, a.Type))
	case a.Wrong("mask before a cap"):
		s = a.Op("Where", allowed, s, a.Scalar(a.Type, -1e9))
		s = a.Op("Mul", a.Op("Tanh", s), a.Scalar(a.Type, 2))
	case !a.sink && !a.factors && a.scale*float64(a.width) <= 2 && a.Chance(3): // otherwise they underflow
		return a.masked(s, allowed, axis)
	case a.Chance(2):
		s = a.Op("Where", allowed, s, a.Scalar(a.Type, least))
	default:
		s = a.Sum(s, a.Op("Where", allowed, a.Scalar(a.Type, 0), a.Scalar(a.Type, least)))
	}
	if a.Wrong("softmax over the queries") {
		axis = int64(strings.IndexByte(a.order, 'i'))
	} else if a.sink {
		return a.withSink(s)
	}
	p := a.softmax(s, axis)
	switch {
	case a.Wrong("squares of the weights"):
		p = a.Op("Mul", p, p)
	case a.Wrong("half of the weights"):
		p = a.Op("Mul", p, a.Scalar(a.Type, 0.5))
	case a.Wrong("sigmoids instead of weights"):
		p = a.Op("Sigmoid", s)
	}
	if math.IsInf(least, -1) {
		p = a.Op("Where", a.Op("IsNaN", p), a.Scalar(a.Type, 0), p)
	}
	return p
}

// masked multiplies the exponentials by the mask.
func (a *attention) masked(s, allowed *onnx.Value, axis int64) *onnx.Value {
	mask := a.Cast(allowed, a.Type)
	e := a.Op("Exp", a.Op("Sub", s, a.Reduce("ReduceMax", s, []int64{axis}, true)))
	if a.Wrong("mask after the sum") {
		return a.Op("Mul", a.Op("Div", e, a.Reduce("ReduceSum", e, []int64{axis}, true)), mask)
	}
	e = a.Op("Mul", e, mask)
	p := a.Op("Div", e, a.Reduce("ReduceSum", e, []int64{axis}, true))
	return a.Op("Where", a.Op("IsNaN", p), a.Scalar(a.Type, 0), p)
}

func (a *attention) softmax(s *onnx.Value, axis int64) *onnx.Value {
	if a.Chance(3) {
		s = a.Op("Sub", s, a.Reduce("ReduceMax", s, []int64{axis}, true))
		if a.Chance(2) {
			e := a.Op("Exp", s)
			return a.Op("Div", e, a.Reduce("ReduceSum", e, []int64{axis}, true))
		}
	}
	return a.Op("Softmax", s, onnx.IntAttr("axis", axis))
}

// withSink adds a column to the scores that takes a share of the weights and contributes nothing.
func (a *attention) withSink(s *onnx.Value) *onnx.Value {
	values := make([]float64, a.heads)
	for h := range values {
		values[h] = float64(h) - 1
	}
	shape := a.Op("Concat", a.Op("Slice", a.Op("Shape", s), a.Ints(0), a.Ints(3)), a.Ints(1), onnx.IntAttr("axis", 0))
	column := a.Op("Expand", a.Floats(a.Type, []int{1, a.heads, 1, 1}, values), shape)
	p := a.softmax(a.Op("Concat", s, column, onnx.IntAttr("axis", -1)), -1)
	if a.Wrong("the first column dropped") {
		return a.Op("Slice", p, a.Ints(1), a.Ints(math.MaxInt64), a.Ints(3))
	}
	return a.Op("Slice", p, a.Ints(0), a.Ints(-1), a.Ints(3))
}
