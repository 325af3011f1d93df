package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// maxFilled bounds the elements of constants that are looked at.
const maxFilled = 1 << 16

// filledView is the built-in view Filled<value=n>(): a constant of several elements, all of them n.
func filledView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	if x, ok := g.Filled(v); ok {
		return &ViewMatch{Attributes: map[string]any{"value": x}}, nil
	}
	return nil, &ViewMiss{At: v}
}

// Filled returns the number that all elements of a constant are, of which there are two at least.
func (g *View) Filled(v *onnx.Value) (x float64, ok bool) {
	filled := *Memo[map[*onnx.Value][]float64](g)
	if filled == nil {
		filled = map[*onnx.Value][]float64{}
		*Memo[map[*onnx.Value][]float64](g) = filled
	}
	list, known := filled[v]
	if !known {
		list = g.filled(v)
		filled[v] = list
	}
	if len(list) == 0 {
		return 0, false
	}
	return list[0], true
}

// filled returns the element of a constant whose elements are all the same, in a list; an empty one for other values.
func (g *View) filled(v *onnx.Value) []float64 {
	t, ok := g.Facts.Constant(v)
	if c := v.Constant(); !ok && c != nil && c.DataType.IsFloat() && c.Len() >= 2 && c.Len() <= maxFilled {
		t, _ = reference.FromONNX(c)
	}
	if t == nil || len(t.F) < 2 || slices.ContainsFunc(t.F, func(x float64) bool { return x != t.F[0] }) {
		return nil
	}
	return t.F[:1]
}
