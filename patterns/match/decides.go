package match

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// maxBounds bounds the numbers that a node compares with.
const maxBounds = 64

// A Decision is a test of floating-point data: a comparison with numbers, or a test for which no samples of both
// outcomes can be chosen.
type Decision struct {
	Value  *onnx.Value // the data
	Bounds []float64   // the numbers that the data are compared with
	// Open is set if data are compared with other data, rounded, or tested for NaN or infinity.
	Open bool
}

// DecidesBy returns the test of data that a node makes, by which a graph may compute one thing or another. It returns
// nil for other nodes. isData reports whether a value is data.
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

// Around returns the bounds, their negatives, and numbers near and far on both sides of these. It includes numbers
// between each two bounds, to probe the function there.
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
