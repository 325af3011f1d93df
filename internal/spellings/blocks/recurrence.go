package blocks

import (
	"math"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// recurrence is linear attention over many tokens as written.
type recurrence struct {
	*writer.Writer
	heads, groups, key, val int
	q, k, v, gate           *onnx.Value // [batch, heads, tokens, channels]; the gate has one channel, or is nil
	norm                    bool
}

// WriteLinear writes linear attention with a decay by the products of all queries and keys.
func WriteLinear(w *writer.Writer) []*onnx.Value {
	w.Type, w.Alone, w.Square = onnx.Float, true, false
	l := &recurrence{Writer: w, heads: 4, groups: writer.Choose(w, 1, 2, 4), key: writer.Choose(w, 4, 6),
		val:  writer.Choose(w, 3, 5, 8),
		norm: w.Chance(2)}
	l.enterRows()
	y := l.together()
	if w.Chance(3) { // added rows
		weights := make([]float64, l.heads)
		for i := range weights {
			weights[i] = w.Rand.NormFloat64()
		}
		y = w.Sum(y, w.Product(l.v, w.Floats(onnx.Float, []int{l.heads, 1, 1}, weights)))
	}
	if w.Chance(2) {
		y = w.Op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	return []*onnx.Value{y}
}

// enterRows declares the inputs, and brings them to heads, tokens and channels.
func (l *recurrence) enterRows() {
	batch, tokens := writer.Dim{Name: "batch", Size: 2}, writer.Dim{Name: "tokens", Size: 5}
	var turned []bool
	in := func(name string, heads, width int) *onnx.Value {
		turned = append(turned, l.Chance(2))
		if turned[len(turned)-1] {
			return l.Input(name, onnx.Float, []writer.Dim{batch, tokens, {Name: "", Size: heads},
				{Name: "", Size: width}})
		}
		return l.Input(name, onnx.Float, []writer.Dim{batch, {Name: "", Size: heads}, tokens, {Name: "", Size: width}})
	}
	inputs := []*onnx.Value{in("q", l.groups, l.key), in("k", l.groups, l.key), in("v", l.heads, l.val)}
	gated := l.Chance(2)
	if gated {
		inputs = append(inputs, in("gate", l.heads, 1))
	}
	values := l.Enter(inputs...)
	for i, t := range turned {
		if t {
			values[i] = l.Op("Transpose", values[i], onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
	l.q, l.k, l.v = l.repeated(l.unit(values[0])), l.repeated(l.unit(values[1])), values[2]
	if gated {
		l.gate = l.Op("Neg", l.Op("Softplus", values[3]))
	}
	if l.q = l.Product(l.q, l.Scalar(onnx.Float, 0.5)); l.Outside("scale twice") {
		l.q = l.Product(l.q, l.Scalar(onnx.Float, 0.5))
	}
}

// unit divides the rows of queries or keys by their lengths.
func (l *recurrence) unit(x *onnx.Value) *onnx.Value {
	if !l.norm {
		return x
	}
	sum := l.Op("ReduceSum", l.Op("Mul", x, x), l.Ints(writer.Choose[int64](l.Writer, -1, 3)),
		onnx.IntAttr("keepdims", 1))
	root := l.Op("Sqrt", l.Sum(sum, l.Scalar(onnx.Float, 1e-6)))
	if l.Chance(2) {
		return l.Op("Div", x, root)
	}
	return l.Product(x, l.Op("Reciprocal", root))
}

// repeated gives each group of heads its query or key.
func (l *recurrence) repeated(x *onnx.Value) *onnx.Value {
	if l.groups == l.heads {
		return x
	}
	each := int64(l.heads / l.groups)
	axis := int64(2)
	if l.Outside("heads of another group") {
		axis = 1
	}
	x = l.Op("Unsqueeze", x, l.Ints(axis))
	times := []int64{1, 1, 1, 1, 1}
	times[axis] = each
	return l.Op("Reshape", l.Op("Expand", x, l.Ints(times...)), l.Ints(0, int64(l.heads), -1, int64(l.key)))
}

// together writes the products of all queries and keys, with the decay between them.
func (l *recurrence) together() *onnx.Value {
	turn := onnx.IntsAttr("perm", []int64{0, 1, 3, 2})
	n := l.Op("Slice", l.Op("Shape", l.v), l.Ints(2), l.Ints(3), l.Ints(0))
	upper := int64(0)
	if l.Wrong("later tokens instead of earlier ones") {
		upper = 1
	}
	ones := l.Op("Expand", l.Floats(onnx.Float, []int{1}, []float64{1}), l.Op("Concat", n, n, onnx.IntAttr("axis", 0)))
	between := l.between(n, turn)
	mask := l.Constant(writer.ScalarInt(0))
	visible := l.Op("Greater", l.Op("Trilu", ones, mask, onnx.IntAttr("upper", upper)), l.Floats(onnx.Float, []int{},
		[]float64{0.5}))
	if l.Wrong("without the token itself") {
		visible = l.Op("Greater", l.Op("Trilu", ones, l.Constant(writer.ScalarInt(-1)), onnx.IntAttr("upper", 0)),
			l.Floats(onnx.Float, []int{}, []float64{0.5}))
	}
	var factors *onnx.Value
	if l.Chance(2) {
		factors = l.Op("Exp", l.Op("Where", visible, between, l.Floats(onnx.Float, []int{}, []float64{math.Inf(-1)})))
	} else {
		masked := l.Op("Where", visible, between, l.Floats(onnx.Float, []int{}, []float64{0}))
		factors = l.Op("Where", visible, l.Op("Exp", masked), l.Floats(onnx.Float, []int{}, []float64{0}))
	}
	scores := l.Op("MatMul", l.q, l.Op("Transpose", l.k, turn))
	switch {
	case l.Wrong("a softmax of the scores"):
		scores = l.Op("Softmax", scores, onnx.IntAttr("axis", -1))
	case l.Wrong("positive scores"):
		scores = l.Op("Relu", scores)
	}
	return l.Op("MatMul", l.Product(scores, factors), l.v)
}

// between writes the logarithms of the decay from each token to each other one. n is the number of tokens.
func (l *recurrence) between(n *onnx.Value, turn *onnx.Attribute) *onnx.Value {
	if l.gate == nil {
		rates := make([]float64, l.heads)
		for i := range rates {
			rates[i] = -l.Rand.Float64()
		}
		number := func(x int64) *onnx.Value { return l.Constant(writer.ScalarInt(x)) }
		at := l.Op("Range", number(0), l.Op("Squeeze", n), number(1))
		at = l.Op("Cast", at, onnx.IntAttr("to", int64(onnx.Float)))
		steps := l.Op("Sub", l.Op("Unsqueeze", at, l.Ints(1)), l.Op("Unsqueeze", at, l.Ints(0)))
		if l.Wrong("a decay by the square of the distance") {
			steps = l.Op("Mul", steps, steps)
		}
		return l.Product(steps, l.Floats(onnx.Float, []int{l.heads, 1, 1}, rates))
	}
	exclusive := func(name string) *onnx.Attribute {
		on := int64(0)
		if l.Wrong(name) {
			on = 1
		}
		return onnx.IntAttr("exclusive", on)
	}
	axis := func() *onnx.Value { return l.Constant(writer.ScalarInt(writer.Choose[int64](l.Writer, 2, -2))) }
	sums := l.Op("CumSum", l.gate, axis(), exclusive("a decay of the token's own update"))
	later := sums
	if l.Wrong("a decay that begins one token late") {
		later = l.Op("CumSum", l.gate, axis(), onnx.IntAttr("exclusive", 1))
	}
	return l.Op("Sub", later, l.Op("Transpose", sums, turn))
}
