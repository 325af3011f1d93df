package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteComposedGate writes a gated unit by identities.
func WriteComposedGate(w *writer.Writer) []*onnx.Value {
	w.Simply()
	gate, up, rank := gated(w, w.Chance(2))
	a := &writer.Algebra{Writer: w, Rank: rank}
	var by *onnx.Value
	switch a.Rand.IntN(4) {
	case 0:
		by = a.Normal(gate, false)
	case 1:
		by = a.Normal(gate, true)
	case 2:
		by = a.Logistic(a.Times(gate, 1.702))
	default:
		by = a.Logistic(gate)
	}
	switch {
	case a.Outside("one less the activation's factor"):
		by = a.Op("Sub", a.Number(1), by)
	case a.Outside("the factor squared"):
		by = a.Square(by)
	case a.Outside("up passed through tanh"):
		up = a.Op("Tanh", up)
	case a.Wrong("gate added"):
		return []*onnx.Value{a.Op("Add", a.Product(gate, by), up)}
	case a.Outside("a factor"):
		by = a.Times(by, 1.25)
	case a.Wrong("without the gate"):
		return []*onnx.Value{a.Product(up, by)}
	}
	if a.Chance(4) { // distributed over two halves of up
		half := a.Times(up, 0.5)
		return []*onnx.Value{a.Plus(a.Product(gate, by, half), a.Product(half, by, gate))}
	}
	return []*onnx.Value{a.Product(gate, by, up)}
}
