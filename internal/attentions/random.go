package attentions

import (
	"fmt"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// drawn draws a mask of comparisons of numbers computed from positions and lengths.
type drawn struct {
	*rand.Rand
	*lookalike
}

// formula is a value and its text.
type formula struct {
	v    *onnx.Value
	text string
}

func (d drawn) number() int {
	list := []int{2, 3, 4, 5, 7, 8, 16, 100, 128, 255, 1000, 3000, 4096, 5000, 6000}
	return list[d.IntN(len(list))]
}

func (d drawn) whole(v *onnx.Value) *onnx.Value {
	return d.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Int64)))
}

// integer draws a number computed in several steps.
func (d drawn) integer(steps int) formula {
	if steps == 0 || d.IntN(3) == 0 {
		list := []formula{{d.i, "i"}, {d.j, "j"}, {d.d, "d"}, {d.length, "keys"},
			{d.Op("Sub", d.length, d.size(d.q, 2)), "past"}}
		return list[d.IntN(len(list))]
	}
	x, n := d.integer(steps-1), d.number()
	half := float64(n) + 0.5
	switch d.IntN(10) {
	case 0:
		return formula{d.Op("Add", x.v, n), fmt.Sprintf("(%s + %d)", x.text, n)}
	case 1:
		return formula{d.Op("Mod", x.v, n), fmt.Sprintf("(%s mod %d)", x.text, n)}
	case 2:
		return formula{d.Op("Div", x.v, n), fmt.Sprintf("(%s / %d)", x.text, n)}
	case 3:
		return formula{d.Op("Min", x.v, n), fmt.Sprintf("min(%s, %d)", x.text, n)}
	case 4:
		return formula{d.Op("Max", x.v, n), fmt.Sprintf("max(%s, %d)", x.text, n)}
	case 5:
		v := d.whole(d.Op("Floor", d.Op("Div", d.float(x.v), half)))
		return formula{v, fmt.Sprintf("floor(%s / %g)", x.text, half)}
	case 6:
		v := d.whole(d.Op("Round", d.Op("Mul", d.float(x.v), 1/float64(n))))
		return formula{v, fmt.Sprintf("round(%s * 1/%d)", x.text, n)}
	case 7:
		return formula{d.Op("Abs", x.v), "|" + x.text + "|"}
	case 8:
		y := d.integer(steps - 1)
		return formula{d.Op("Sub", x.v, y.v), "(" + x.text + " - " + y.text + ")"}
	}
	return formula{d.whole(d.Op("Sqrt", d.float(d.Op("Abs", x.v)))), "root(" + x.text + ")"}
}

// truth draws a comparison or a combination of several.
func (d drawn) truth(steps int) formula {
	if steps > 0 && d.IntN(3) == 0 {
		op, x, y := []string{"And", "Or"}[d.IntN(2)], d.truth(steps-1), d.truth(steps-1)
		return formula{d.Op(op, x.v, y.v), fmt.Sprintf("%s(%s, %s)", op, x.text, y.text)}
	}
	op := []string{"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"}[d.IntN(5)]
	x, y := d.integer(2), d.integer(1)
	if n := d.number(); d.IntN(2) == 0 {
		return formula{d.Op(op, x.v, n), fmt.Sprintf("%s(%s, %d)", op, x.text, n)}
	}
	return formula{d.Op(op, x.v, y.v), fmt.Sprintf("%s(%s, %s)", op, x.text, y.text)}
}

// Random returns attention with a random mask and the mask's text: part of the causal mask including each query's own
// key, or more than the causal mask. Inputs are as for Lookalikes.
func Random(seed uint64) (m *onnx.Model, mask string) {
	l := Lookalike{steps: steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
		d := drawn{rand.New(rand.NewPCG(seed, 0)), b}
		is := d.truth(1)
		if mask = is.text; d.IntN(3) == 0 {
			mask = "causal or " + mask
			return d.Op("Or", d.causal(), is.v)
		}
		return d.Op("And", d.causal(), d.Op("Or", d.Op("Equal", d.d, 0), is.v))
	}}}
	return l.Model(), mask
}
