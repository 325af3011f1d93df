package sites

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// structuralBound returns prove.StructuralTolerance, or the error of a half-type constant relative to the intended
// number, carried through a few operations: 0.044715 is 0.04473 in float16. Short numbers such as 0.5 or 3 are exact.
func (s *slice) structuralBound() float64 {
	bound := prove.StructuralTolerance
	numbers := slices.Clone(s.numbers)
	for _, v := range s.consts {
		if c := v.Constant(); c.Len() == 1 {
			if t, err := reference.FromONNX(c); err == nil {
				numbers = append(numbers, t)
			}
		}
	}
	for _, t := range numbers {
		if len(t.F) != 1 || t.DataType != onnx.Float16 && t.DataType != onnx.BFloat16 {
			continue
		}
		mantissa, _ := math.Frexp(t.F[0])
		if short := math.Ldexp(mantissa, 5); short != math.Trunc(short) {
			bound = max(bound, math.Ldexp(8, -prove.FloatTypes[t.DataType].Bits))
		}
	}
	return bound
}

// intended returns an error if numbers that constants are said to be roundings of are other numbers than those. Without
// rounding, the nodes are evaluated with them, and must agree with the op as closely as if they were the constants. In
// the graph's types the nodes have the constants themselves.
func (c *Site) intended() error {
	for v, t := range c.Match.Intended {
		stored, err := reference.FromONNX(v.Constant())
		if err != nil {
			return &prove.EvalError{Err: err}
		}
		if stored.DataType != t.DataType || !slices.Equal(stored.Shape, t.Shape) ||
			!slices.EqualFunc(stored.F, t.F, func(x, y float64) bool { return x == prove.RoundTo(t.DataType, y) }) {
			return reason.New(reason.Differs, v.Producer, "constant %q is not the rounding of the op's numbers",
				v.Name)
		}
	}
	return nil
}

// isIntended reports whether a known value depends on constants that are roundings.
func (c *Site) isIntended(v *onnx.Value) bool {
	if len(c.Match.Intended) == 0 || v == nil {
		return false
	}
	n := v.Producer
	return c.Match.Intended[v] != nil || v.Constant() == nil && n != nil && slices.ContainsFunc(n.Inputs, c.isIntended)
}

// restate evaluates a known value with the numbers that constants are roundings of, or one too long to be known.
func (c *Site) restate(e *reference.Evaluator, w world, v *onnx.Value, env map[*onnx.Value]*reference.Tensor) error {
	switch t, ok := w.facts.Known(v, w.n); {
	case v == nil || env[v] != nil || v.Constant() != nil:
		return nil
	case !c.isIntended(v) && ok:
		env[v] = t
		return nil
	case !c.isIntended(v) && (v.Producer == nil || v.Producer.IsRandom() || len(v.Producer.Subgraphs()) > 0):
		return unknownElsewhere(v)
	}
	for _, in := range v.Producer.Inputs {
		if err := c.restate(e, w, in, env); err != nil {
			return err
		}
	}
	_, err := e.EvalFor([]*onnx.Node{v.Producer}, env, []*onnx.Value{v})
	return err
}

// allowed returns the bound of a site whose results are rounded.
func (c *Site) allowed(_ int, t onnx.DataType, magnitude float64) float64 {
	t = c.rounds(t)
	return prove.AllowedULPs(t, c.terms) * prove.Spacing(t, magnitude)
}

// rounds returns the type that an output of type t is rounded to on the way.
func (c *Site) rounds(t onnx.DataType) onnx.DataType {
	if f, ok := prove.FloatTypes[c.coarse]; ok && f.Bits < prove.FloatTypes[t].Bits {
		return c.coarse
	}
	return t
}
