package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// recurrence is linear attention over many tokens as written.
type recurrence struct {
	*writer
	heads, groups, key, val int
	q, k, v, gate           *onnx.Value // [batch, heads, tokens, channels]; the gate has one channel, or is nil
	norm                    bool
}

// writeLinear writes linear attention with a decay by the products of all queries and keys.
func writeLinear(w *writer) []*onnx.Value {
	w.typ, w.alone, w.square = onnx.Float, true, false
	l := &recurrence{writer: w, heads: 4, groups: choose(w, 1, 2, 4), key: choose(w, 4, 6), val: choose(w, 3, 5, 8),
		norm: w.chance(2)}
	l.enterRows()
	y := l.together()
	if w.chance(3) { // added rows
		weights := make([]float64, l.heads)
		for i := range weights {
			weights[i] = w.r.NormFloat64()
		}
		y = w.sum(y, w.product(l.v, w.floats(onnx.Float, []int{l.heads, 1, 1}, weights)))
	}
	if w.chance(2) {
		y = w.op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	return []*onnx.Value{y}
}

// enterRows declares the inputs, and brings them to heads, tokens and channels.
func (l *recurrence) enterRows() {
	batch, tokens := dim{"batch", 2}, dim{"tokens", 5}
	var turned []bool
	in := func(name string, heads, width int) *onnx.Value {
		turned = append(turned, l.chance(2))
		if turned[len(turned)-1] {
			return l.input(name, onnx.Float, []dim{batch, tokens, {"", heads}, {"", width}})
		}
		return l.input(name, onnx.Float, []dim{batch, {"", heads}, tokens, {"", width}})
	}
	inputs := []*onnx.Value{in("q", l.groups, l.key), in("k", l.groups, l.key), in("v", l.heads, l.val)}
	gated := l.chance(2)
	if gated {
		inputs = append(inputs, in("gate", l.heads, 1))
	}
	values := l.enter(inputs...)
	for i, t := range turned {
		if t {
			values[i] = l.op("Transpose", values[i], onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
	l.q, l.k, l.v = l.repeated(l.unit(values[0])), l.repeated(l.unit(values[1])), values[2]
	if gated {
		l.gate = l.op("Neg", l.op("Softplus", values[3]))
	}
	if l.q = l.product(l.q, l.scalar(onnx.Float, 0.5)); l.outside("scale twice") {
		l.q = l.product(l.q, l.scalar(onnx.Float, 0.5))
	}
}

// unit divides the rows of queries or keys by their lengths.
func (l *recurrence) unit(x *onnx.Value) *onnx.Value {
	if !l.norm {
		return x
	}
	sum := l.op("ReduceSum", l.op("Mul", x, x), l.ints(choose[int64](l.writer, -1, 3)), onnx.IntAttr("keepdims", 1))
	root := l.op("Sqrt", l.sum(sum, l.scalar(onnx.Float, 1e-6)))
	if l.chance(2) {
		return l.op("Div", x, root)
	}
	return l.product(x, l.op("Reciprocal", root))
}

// repeated gives each group of heads its query or key.
func (l *recurrence) repeated(x *onnx.Value) *onnx.Value {
	if l.groups == l.heads {
		return x
	}
	each := int64(l.heads / l.groups)
	axis := int64(2)
	if l.outside("heads of another group") {
		axis = 1
	}
	x = l.op("Unsqueeze", x, l.ints(axis))
	times := []int64{1, 1, 1, 1, 1}
	times[axis] = each
	return l.op("Reshape", l.op("Expand", x, l.ints(times...)), l.ints(0, int64(l.heads), -1, int64(l.key)))
}

// together writes the products of all queries and keys, with the decay between them.
func (l *recurrence) together() *onnx.Value {
	turn := onnx.IntsAttr("perm", []int64{0, 1, 3, 2})
	n := l.op("Slice", l.op("Shape", l.v), l.ints(2), l.ints(3), l.ints(0))
	upper := int64(0)
	if l.wrong("later tokens instead of earlier ones") {
		upper = 1
	}
	ones := l.op("Expand", l.floats(onnx.Float, []int{1}, []float64{1}), l.op("Concat", n, n, onnx.IntAttr("axis", 0)))
	between := l.between(n, turn)
	mask := l.constant(scalarInt(0))
	visible := l.op("Greater", l.op("Trilu", ones, mask, onnx.IntAttr("upper", upper)), l.floats(onnx.Float, []int{},
		[]float64{0.5}))
	if l.wrong("without the token itself") {
		visible = l.op("Greater", l.op("Trilu", ones, l.constant(scalarInt(-1)), onnx.IntAttr("upper", 0)),
			l.floats(onnx.Float, []int{}, []float64{0.5}))
	}
	var factors *onnx.Value
	if l.chance(2) {
		factors = l.op("Exp", l.op("Where", visible, between, l.floats(onnx.Float, []int{}, []float64{math.Inf(-1)})))
	} else {
		masked := l.op("Where", visible, between, l.floats(onnx.Float, []int{}, []float64{0}))
		factors = l.op("Where", visible, l.op("Exp", masked), l.floats(onnx.Float, []int{}, []float64{0}))
	}
	scores := l.op("MatMul", l.q, l.op("Transpose", l.k, turn))
	switch {
	case l.wrong("a softmax of the scores"):
		scores = l.op("Softmax", scores, onnx.IntAttr("axis", -1))
	case l.wrong("positive scores"):
		scores = l.op("Relu", scores)
	}
	return l.op("MatMul", l.product(scores, factors), l.v)
}

// between writes the logarithms of the decay from each token to each other one. n is the number of tokens.
func (l *recurrence) between(n *onnx.Value, turn *onnx.Attribute) *onnx.Value {
	if l.gate == nil {
		rates := make([]float64, l.heads)
		for i := range rates {
			rates[i] = -l.r.Float64()
		}
		number := func(x int64) *onnx.Value { return l.constant(scalarInt(x)) }
		at := l.op("Range", number(0), l.op("Squeeze", n), number(1))
		at = l.op("Cast", at, onnx.IntAttr("to", int64(onnx.Float)))
		steps := l.op("Sub", l.op("Unsqueeze", at, l.ints(1)), l.op("Unsqueeze", at, l.ints(0)))
		if l.wrong("a decay by the square of the distance") {
			steps = l.op("Mul", steps, steps)
		}
		return l.product(steps, l.floats(onnx.Float, []int{l.heads, 1, 1}, rates))
	}
	exclusive := func(name string) *onnx.Attribute {
		on := int64(0)
		if l.wrong(name) {
			on = 1
		}
		return onnx.IntAttr("exclusive", on)
	}
	axis := func() *onnx.Value { return l.constant(scalarInt(choose[int64](l.writer, 2, -2))) }
	sums := l.op("CumSum", l.gate, axis(), exclusive("a decay of the token's own update"))
	later := sums
	if l.wrong("a decay that begins one token late") {
		later = l.op("CumSum", l.gate, axis(), onnx.IntAttr("exclusive", 1))
	}
	return l.op("Sub", later, l.op("Transpose", sums, turn))
}
