package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// HalfTurn is a constant matrix that rows are multiplied with to turn each pair of channels by a right angle, which a
// rotary embedding does beside its sines: (a, b) to (-b, a), or with Sign -1 to (b, -a).
type HalfTurn struct {
	Layout string // of the pairs: "halves", or "interleaved" for neighbours
	Sign   float64
}

// halfTurnView is the built-in view HalfTurn<layout=text, sign=n>().
func halfTurnView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	h := g.HalfTurn(v)
	if h == nil {
		return nil, &ViewMiss{At: v}
	}
	return &ViewMatch{Attributes: map[string]any{"layout": h.Layout, "sign": h.Sign}}, nil
}

// HalfTurn returns which such matrix v is, nil for none.
func (g *View) HalfTurn(v *onnx.Value) *HalfTurn {
	turns := *Memo[map[*onnx.Value]*HalfTurn](g)
	if turns == nil {
		turns = map[*onnx.Value]*HalfTurn{}
		*Memo[map[*onnx.Value]*HalfTurn](g) = turns
	}
	h, known := turns[v]
	if !known {
		h = halfTurn(v.Constant())
		turns[v] = h
	}
	return h
}

func halfTurn(c *onnx.Tensor) *HalfTurn {
	if c == nil || !c.DataType.IsFloat() || c.Len() > maxFilled || len(c.Dims) < 2 {
		return nil
	}
	n := c.Dims[len(c.Dims)-1]
	if n < 2 || n%2 != 0 || n*n != int64(c.Len()) || c.Dims[len(c.Dims)-2] != n {
		return nil
	}
	t, err := reference.FromONNX(c)
	if err != nil {
		return nil
	}
	for _, h := range []HalfTurn{{"halves", 1}, {"halves", -1}, {"interleaved", 1}, {"interleaved", -1}} {
		if slices.Equal(t.F, h.elements(int(n))) {
			return &h
		}
	}
	return nil
}

// elements are those of the matrix for n channels, in row-major order.
func (h HalfTurn) elements(n int) []float64 {
	list := make([]float64, n*n)
	for i := range n / 2 {
		a, b := i, i+n/2
		if h.Layout == "interleaved" {
			a, b = 2*i, 2*i+1
		}
		list[b*n+a], list[a*n+b] = -h.Sign, h.Sign
	}
	return list
}
