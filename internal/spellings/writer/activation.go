package writer

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Wider computes f in float32 if x has a half type, or keeps x's type.
func (w *Writer) Wider(x *onnx.Value, f func(x *onnx.Value, t onnx.DataType) *onnx.Value) *onnx.Value {
	if w.Half() && w.Chance(3) {
		return w.Cast(f(w.Cast(x, onnx.Float), onnx.Float), w.Type)
	}
	return f(x, w.Type)
}

// Negated writes -x.
func (w *Writer) Negated(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch w.Rand.IntN(5) {
	case 0:
		return w.Op("Mul", x, w.Scalar(t, -1))
	case 1:
		return w.Op("Sub", w.Scalar(t, 0), x)
	case 2:
		return w.Op("Div", x, w.Scalar(t, -1))
	}
	return w.Op("Neg", x)
}

// Sigmoid writes 1 / (1 + exp(-x)).
func (w *Writer) Sigmoid(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch {
	case w.Wrong("tanh instead of the sigmoid"):
		return w.Op("Tanh", x)
	case w.Wrong("hard sigmoid"):
		return w.Op("HardSigmoid", x)
	case w.Wrong("sigmoid twice"):
		return w.Op("Sigmoid", w.Op("Sigmoid", x))
	case w.Wrong("one less the sigmoid"):
		return w.Op("Sub", w.Scalar(t, 1), w.Op("Sigmoid", x))
	case w.Wrong("exponential instead of the sigmoid"):
		return w.Op("Exp", w.Op("Neg", x))
	case w.Wrong("two plus the exponential"):
		return w.Op("Reciprocal", w.Sum(w.Scalar(t, 2), w.Op("Exp", w.Op("Neg", x))))
	}
	if w.Chance(3) {
		d := w.OnePlusExp(x, t)
		if w.Chance(2) {
			return w.Op("Reciprocal", d)
		}
		return w.Op("Div", w.Scalar(t, 1), d)
	}
	return w.Op("Sigmoid", x)
}

// OnePlusExp writes 1 + exp(-x).
func (w *Writer) OnePlusExp(x *onnx.Value, t onnx.DataType) *onnx.Value {
	return w.Sum(w.Scalar(t, 1), w.Op("Exp", w.Negated(x, t)))
}

// GLUEdits offers the edits of every gated unit: another argument of the activation, another combination.
func (w *Writer) GLUEdits(gate, up *onnx.Value, activated func(*onnx.Value) *onnx.Value) *onnx.Value {
	switch {
	case w.Wrong("up missing"):
		return activated(gate)
	case w.Wrong("magnitude of the activation"):
		return w.Op("Mul", w.Op("Abs", activated(gate)), up)
	case w.Wrong("sum instead of the product"):
		return w.Op("Add", activated(gate), up)
	case w.Wrong("quotient instead of the product"):
		return w.Op("Div", activated(gate), w.Op("Exp", up))
	case w.Wrong("activation of both"):
		return activated(w.Op("Mul", gate, up))
	case w.Wrong("activation of a shifted gate, times the gate"):
		return w.Op("Mul", w.Op("Mul", w.Op("Sigmoid", w.Op("Add", gate, w.Scalar(w.Type, 0.5))), gate), up)
	case w.Wrong("channels of the gate reversed in the sigmoid"):
		last := w.Ints(-1)
		return w.Product(w.Op("Sigmoid", w.Op("Slice", gate, last, w.Ints(math.MinInt64), last, last)), gate, up)
	}
	return nil
}

// clamp limits x on both sides, by Clip or by Min and Max.
func (w *Writer) clamp(x *onnx.Value, low, high *onnx.Value) *onnx.Value {
	switch w.Rand.IntN(4) {
	case 0:
		return w.Op("Min", w.Op("Max", x, low), high)
	case 1:
		return w.Op("Max", w.Op("Min", x, high), low)
	}
	return w.Op("Clip", x, low, high)
}

// Clamping holds the limit, the sigmoid's factor and the offset of a clamped unit.
type Clamping struct{ limit, alpha, offset float64 }

// NewClamping draws a limit, a factor and an offset.
func NewClamping(w *Writer) Clamping {
	return Clamping{Choose(w, 7.0, 1.0, 0.75), Choose(w, 1.702, 1.0, 2), Choose(w, 1.0, 0.5, 0)}
}

// ClampedSwiGLU limits gate from above and up on both sides, adds the offset to up, and has a factor inside the
// sigmoid.
func (w *Writer) ClampedSwiGLU(gate, up *onnx.Value, by Clamping) *onnx.Value {
	limit, alpha, offset := by.limit, by.alpha, by.offset
	bound := func(x float64) *onnx.Value { return w.Floats(w.Type, []int{}, []float64{x}) }
	g := gate
	switch {
	case w.Wrong("gate clamped on the wrong side"):
		g = w.Op("Max", g, bound(limit))
	case w.Wrong("gate clamped on both sides"):
		g = w.Op("Clip", g, bound(-limit/4), bound(limit))
	case w.Wrong("gate clamped at another limit"):
		g = w.Op("Min", g, bound(limit/2))
	case w.Wrong("gate not clamped"):
	case w.Chance(2):
		g = w.Op("Min", g, bound(limit))
	case w.Chance(3): // a bound without effect
		g = w.Op("Clip", g, bound(-Greatest[w.Type]), bound(limit))
	default:
		g = w.Op("Clip", g, Omitted, bound(limit))
	}
	u := up
	switch {
	case w.Wrong("up clamped only from above"):
		u = w.Op("Min", u, bound(limit))
	case w.Wrong("up clamped unevenly"):
		u = w.clamp(u, bound(-limit/4), bound(limit))
	case w.Wrong("up not clamped"):
	default:
		u = w.clamp(u, bound(-limit), bound(limit))
	}
	if w.Wrong("up shifted from row to row") {
		u = w.Op("Add", u, w.Op("Sin", w.Reduce("ReduceMax", gate, []int64{-1}, true)))
	} else if offset != 0 {
		u = w.Sum(u, w.Scalar(w.Type, offset))
	}
	s := g
	if alpha != 1 {
		s = w.Product(g, w.Scalar(w.Type, alpha))
	}
	if w.Wrong("sigmoid of the gate before it was clamped") {
		s = w.Op("Mul", gate, w.Scalar(w.Type, alpha))
	}
	s = w.Sigmoid(s, w.Type)
	if y := w.GLUEdits(g, u, func(x *onnx.Value) *onnx.Value { return w.Op("Mul", x, s) }); y != nil {
		return y
	}
	return w.Product(u, g, s)
}

// Greatest is the greatest number of each type of activations.
var Greatest = map[onnx.DataType]float64{onnx.Float: math.MaxFloat32, onnx.Float16: 65504, onnx.BFloat16: 0x1.fep127}

// GELU writes the gelu of x, by its op or by its factors; tanh selects the approximation.
func (w *Writer) GELU(x *onnx.Value, t onnx.DataType, tanh bool) *onnx.Value {
	if w.Opset >= 20 && w.Chance(3) {
		switch {
		case tanh:
			return w.Op("Gelu", x, onnx.StringAttr("approximate", "tanh"))
		case w.Chance(2):
			return w.Op("Gelu", x, onnx.StringAttr("approximate", "none"))
		}
		return w.Op("Gelu", x)
	}
	return w.Product(w.GELUFactors(x, t, tanh)...)
}

// GELUFactors are the factors of 0.5 x (1 + tanh(…)) or 0.5 x (1 + erf(…)).
func (w *Writer) GELUFactors(x *onnx.Value, t onnx.DataType, tanh bool) []*onnx.Value {
	half, one := w.Scalar(t, 0.5), w.Scalar(t, 1)
	switch {
	case w.Wrong("one instead of a half"):
		half = w.Scalar(t, 1)
	case w.Wrong("two instead of one"):
		one = w.Scalar(t, 2)
	}
	var s *onnx.Value
	switch {
	case w.Wrong("sigmoid instead of the function"):
		s = w.Op("Sigmoid", x)
	case tanh && w.Wrong("erf instead of tanh"):
		s = w.Op("Erf", w.tanhArg(x, t))
	case tanh:
		s = w.Op("Tanh", w.tanhArg(x, t))
	case w.Wrong("tanh instead of erf"):
		s = w.Op("Tanh", w.erfArg(x, t))
	default:
		s = w.Op("Erf", w.erfArg(x, t))
	}
	if w.Wrong("one less the function") {
		return []*onnx.Value{half, x, w.Op("Sub", one, s)}
	}
	if w.Wrong("no x in front") {
		return []*onnx.Value{half, w.Sum(one, s)}
	}
	if w.Change != "one instead of a half" && w.Chance(4) {
		return []*onnx.Value{w.Op("Div", x, w.Scalar(t, 2)), w.Sum(one, s)}
	}
	return []*onnx.Value{half, x, w.Sum(one, s)}
}

func (w *Writer) erfArg(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch {
	case w.Wrong("erf of x"):
		return x
	case w.Wrong("erf of x over two"):
		return w.Op("Div", x, w.Scalar(t, 2))
	case w.Wrong("erf of a greater x"):
		return w.Op("Mul", x, w.Scalar(t, 0.75))
	}
	if w.Chance(2) {
		return w.Op("Div", x, w.Scalar(t, math.Sqrt2))
	}
	return w.Product(x, w.Scalar(t, math.Sqrt2/2))
}

func (w *Writer) tanhArg(x *onnx.Value, t onnx.DataType) *onnx.Value {
	outer, inner := math.Sqrt(2/math.Pi), 0.044715
	switch {
	case w.Wrong("another factor before tanh"):
		outer = Choose(w, 0.7, 0.85, 1)
	case w.Wrong("another factor of the cube"):
		inner = Choose(w, 0.1, 0.02, 0.0715)
	case w.Wrong("square instead of the cube"):
		return w.Product(w.Scalar(t, outer), w.Sum(x, w.Product(w.Scalar(t, inner), x, x)))
	case w.Wrong("fourth power instead of the cube"):
		return w.Product(w.Scalar(t, outer), w.Sum(x, w.Product(w.Scalar(t, inner), x, w.Op("Pow", x, w.Scalar(t, 3)))))
	case w.Wrong("difference in the polynomial"):
		return w.Product(w.Scalar(t, outer), w.Op("Sub", x, w.Product(w.Scalar(t, inner), x, x, x)))
	}
	a, b := w.Scalar(t, outer), w.Scalar(t, inner)
	switch w.Rand.IntN(6) {
	case 0:
		return w.Product(a, x, w.Sum(w.Scalar(t, 1), w.Product(b, x, x)))
	case 1:
		return w.Product(a, x, w.Sum(w.Scalar(t, 1), w.Product(b, w.Op("Pow", x, w.Scalar(t, 2)))))
	case 2:
		return w.Product(a, w.Sum(x, w.Product(b, x, x, x)))
	case 3:
		return w.Product(a, w.Sum(x, w.Product(b, x, w.Op("Pow", x, w.Scalar(t, 2)))))
	}
	return w.Product(a, w.Sum(x, w.Product(b, w.Op("Pow", x, w.Scalar(t, 3)))))
}
