package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// signed is for a negation, and for products with constants that are 1 and -1.
func (t *tracer) signed(n *onnx.Node, dims []int) []channel {
	if n.Is("Neg") {
		return times(t.operand(n.Input(0), dims), func(int) float64 { return -1 })
	}
	for i := range 2 {
		c, ok := t.constant(n.Input(i), dims)
		if !ok {
			continue
		}
		factor := func(k int) float64 { return c[k] }
		isSign := !slices.ContainsFunc(c, func(x float64) bool { return x != 1 && x != -1 })
		isZero := !slices.ContainsFunc(c, func(x float64) bool { return x != 0 })
		switch {
		case n.Is("Mul") && isSign:
			return times(t.operand(n.Input(1-i), dims), factor)
		case n.Is("Div") && isSign && i == 1:
			return times(t.operand(n.Input(0), dims), factor)
		case n.Is("Sub") && isZero && i == 0:
			return times(t.operand(n.Input(1), dims), func(int) float64 { return -1 })
		}
	}
	return nil
}

func times(c []channel, factor func(i int) float64) []channel {
	c = slices.Clone(c)
	for i := range c {
		c[i].sign *= factor(i)
	}
	return c
}

// operand traces an operand of an elementwise op and broadcasts it to the block of these dimensions.
func (t *tracer) operand(v *onnx.Value, dims []int) []channel {
	rank, ok := t.g.Facts.Rank(v)
	if !ok {
		return nil
	}
	axes := min(rank, len(dims))
	source, sizes := t.input(v, axes)
	if source == nil {
		return nil
	}
	return repeated(source, dims, sizes)
}

// constant returns the elements of a constant, broadcast to a block of these dimensions; ok is false when rows differ.
func (t *tracer) constant(v *onnx.Value, dims []int) (values []float64, ok bool) {
	if v == nil {
		return nil, false
	}
	c, ok := t.g.Facts.Constant(v)
	if !ok || c.F == nil {
		return nil, false
	}
	shape := c.Shape
	for len(shape) > len(dims) {
		if shape[0] != 1 {
			return nil, false
		}
		shape = shape[1:]
	}
	for i, d := range shape {
		if d != 1 && d != dims[len(dims)-len(shape)+i] {
			return nil, false
		}
	}
	places := make([]channel, len(c.F))
	for i := range places {
		places[i].index = i
	}
	for _, p := range repeated(places, dims, shape) {
		values = append(values, c.F[p.index])
	}
	return values, true
}
