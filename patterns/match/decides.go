package match

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// maxBounds bounds the numbers that a node compares with.
const maxBounds = 64

// Decision is what a node asks about floating-point data: how they compare with numbers, or something that no sample of
// both answers can be found for.
type Decision struct {
	Value  *onnx.Value // the data
	Bounds []float64   // what they are compared with
	// Open says that they are compared with other data, rounded, or asked whether they are numbers.
	Open bool
}

// DecidesBy returns what a node asks about data, by which a graph may compute one thing or another; nil for other
// nodes. isData reports whether a value is data.
func (g *View) DecidesBy(n *onnx.Node, isData func(*onnx.Value) bool) *Decision {
	asked := func(v *onnx.Value) bool { return v != nil && g.Facts.DataType(v).IsFloat() && isData(v) }
	if !onnx.IsStandardDomain(n.Domain) || len(n.Outputs) == 0 {
		return nil
	}
	switch n.OpType {
	case "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal":
		a, b := n.Input(0), n.Input(1)
		if !asked(a) {
			a, b = b, a
		}
		if !asked(a) {
			return nil
		}
		d := &Decision{Value: a}
		t, ok := g.Facts.Constant(b)
		if d.Open = asked(b) || !ok || t.Len() > maxBounds; !d.Open {
			d.Bounds = t.F
		}
		return d
	case "IsNaN", "IsInf", "Sign", "Round", "Floor", "Ceil", "Mod":
		if asked(n.Input(0)) {
			return &Decision{Value: n.Input(0), Open: true}
		}
	case "Cast":
		if asked(n.Input(0)) && !g.Facts.DataType(n.OutputValue(0)).IsFloat() {
			return &Decision{Value: n.Input(0), Open: true}
		}
	}
	return nil
}

// Around returns numbers on both sides of bounds and of their negatives, far from them and near, and themselves. What
// is one function between two bounds is asked about there.
func Around(bounds []float64) []float64 {
	var list []float64
	for _, b := range bounds {
		if b = math.Abs(b); b == 0 || b-b != 0 {
			continue
		}
		for _, x := range []float64{b, 0.999 * b, 1.001 * b, 0.75 * b, 1.5 * b, 2 * b} {
			list = append(list, x, -x)
		}
		for _, c := range bounds {
			if x := (b + math.Abs(c)) / 2; x-x == 0 && x != b {
				list = append(list, x, -x)
			}
		}
	}
	return list
}
