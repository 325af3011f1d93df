package fit

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// maxAround bounds the numbers near comparisons at which a region is tried.
const maxAround = 256

// around returns numbers on both sides of each bound: a number that a region compares elements of its operands with,
// clips them at, or has as an attribute. why is the reason if the region branches on computed values or on NaN and
// infinity: no samples cover both sides of such a branch.
func (f *finder) around(r *region) (numbers []float64, why *reason.Reason) {
	var bounds []float64
	data := func(v *onnx.Value) bool { return !f.isSide(v) }
	for _, n := range r.Nodes {
		if d := f.g.DecidesBy(n, data); d != nil {
			if d.Open || !f.isOperand(r, d.Value) {
				return nil, reason.New(reason.Differs, n, "it branches on the result of %s for %q",
					n.OpType, d.Value.Name)
			}
			bounds = append(bounds, d.Bounds...)
		}
		switch n.OpType {
		case "Clip", "Max", "Min":
			for _, v := range n.Inputs {
				if x, t, ok := f.g.Scalar(v); ok && t.IsFloat() {
					bounds = append(bounds, x)
				}
			}
		}
		for _, a := range n.Attributes {
			if a.Type == onnx.AttrFloat {
				bounds = append(bounds, float64(a.Float))
			}
		}
	}
	for i, b := range bounds {
		bounds[i] = math.Abs(b)
	}
	slices.Sort(bounds)
	if numbers = match.Around(slices.Compact(bounds)); len(numbers) > maxAround {
		return nil, reason.New(reason.Differs, nil, "it compares with more numbers than a trial run covers")
	}
	return numbers, nil
}

// isOperand reports whether a value has the elements of an operand, perhaps negated or as magnitudes.
func (f *finder) isOperand(r *region, v *onnx.Value) bool {
	for range match.MaxDetour {
		if slices.Contains(r.Operands, v) {
			return true
		}
		n := v.Producer
		if n == nil || !keepsElements(n) && !n.MovesElements() && !n.Is("Neg") && !n.Is("Abs") {
			return false
		}
		v = n.Input(0)
	}
	return false
}
