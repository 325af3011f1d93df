package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// logistic returns 1 / (1 + exp(-x)).
func (a *algebra) logistic(x *onnx.Value) *onnx.Value {
	switch a.r.IntN(7) {
	case 0: // (1 + tanh(x/2)) / 2
		return a.times(a.plus(a.op("Tanh", a.times(x, 0.5)), a.number(1)), 0.5)
	case 1: // the first of a softmax of x and 0
		nothing := a.op("Mul", x, a.number(0))
		pair := a.op("Concat", a.op("Unsqueeze", x, a.ints(-1)), a.op("Unsqueeze", nothing, a.ints(-1)),
			onnx.IntAttr("axis", -1))
		return a.op("Gather", a.op("Softmax", pair, onnx.IntAttr("axis", -1)), a.constant(scalarInt(0)),
			onnx.IntAttr("axis", -1))
	case 2:
		return a.op("Exp", a.negative(a.op("Softplus", a.negative(x))))
	case 3: // 1 - logistic(-x)
		if a.deeper() {
			return a.op("Sub", a.number(1), a.logistic(a.negative(x)))
		}
	case 4:
		return a.op("Reciprocal", a.plus(a.op("Exp", a.negative(x)), a.number(1)))
	case 5:
		return a.op("Div", a.number(1), a.plus(a.number(1), a.op("Exp", a.negative(x))))
	}
	return a.op("Sigmoid", x)
}

// tangent returns tanh(x).
func (a *algebra) tangent(x *onnx.Value) *onnx.Value {
	if a.chance(3) {
		return a.op("Sub", a.times(a.logistic(a.times(x, 2)), 2), a.number(1))
	}
	return a.op("Tanh", x)
}

// normal returns the normal distribution function, or GELU's approximation of it.
func (a *algebra) normal(x *onnx.Value, tanh bool) *onnx.Value {
	outer, inner := math.Sqrt(2/math.Pi), 0.044715
	if !tanh {
		argument := math.Sqrt2 / 2
		if a.wrong("another factor within erf") {
			argument = 0.75
		}
		return a.times(a.plus(a.op("Erf", a.times(x, argument)), a.number(1)), 0.5)
	}
	switch {
	case a.wrong("another factor before tanh"):
		outer = 0.85
	case a.wrong("another factor of the cube"):
		inner = 0.0715
	}
	var y *onnx.Value
	if a.chance(2) { // x (1 + 0.04 x^2)
		y = a.times(a.op("Mul", x, a.plus(a.times(a.square(x), inner), a.number(1))), outer)
	} else {
		y = a.times(a.plus(x, a.times(a.product(x, x, x), inner)), outer)
	}
	if a.chance(2) {
		return a.logistic(a.times(y, 2))
	}
	return a.times(a.plus(a.tangent(y), a.number(1)), 0.5)
}

func writeComposedGate(w *writer) []*onnx.Value {
	w.simply()
	gate, up, rank := w.gated(w.chance(2))
	a := &algebra{writer: w, rank: rank}
	var by *onnx.Value
	switch a.r.IntN(4) {
	case 0:
		by = a.normal(gate, false)
	case 1:
		by = a.normal(gate, true)
	case 2:
		by = a.logistic(a.times(gate, 1.702))
	default:
		by = a.logistic(gate)
	}
	switch {
	case a.outside("one less the activation's factor"):
		by = a.op("Sub", a.number(1), by)
	case a.outside("the factor squared"):
		by = a.square(by)
	case a.outside("up passed through tanh"):
		up = a.op("Tanh", up)
	case a.wrong("gate added"):
		return []*onnx.Value{a.op("Add", a.product(gate, by), up)}
	case a.outside("a factor"):
		by = a.times(by, 1.25)
	case a.wrong("without the gate"):
		return []*onnx.Value{a.product(up, by)}
	}
	if a.chance(4) { // distributed over two halves of up
		half := a.times(up, 0.5)
		return []*onnx.Value{a.plus(a.product(gate, by, half), a.product(half, by, gate))}
	}
	return []*onnx.Value{a.product(gate, by, up)}
}
