package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// writeGeGLU writes the gate's gelu times up; tanh selects the approximation.
func writeGeGLU(tanh bool) func(w *writer) []*onnx.Value {
	return func(w *writer) []*onnx.Value {
		gate, up, _ := w.gated(false)
		gelu := func(x *onnx.Value) *onnx.Value {
			return w.wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value { return w.gelu(x, t, tanh) })
		}
		if y := w.gluEdits(gate, up, gelu); y != nil {
			return []*onnx.Value{y}
		}
		if w.chance(2) {
			return []*onnx.Value{w.product(gelu(gate), up)}
		}
		return []*onnx.Value{w.product(append(w.geluFactors(gate, w.typ, tanh), up)...)}
	}
}

// writeBiasGELU writes the gelu of a sum with a bias; form selects the gelu.
func writeBiasGELU(form string) func(w *writer) []*onnx.Value {
	return func(w *writer) []*onnx.Value {
		last := choose(w, 4, 6, 8)
		dims := append(w.rows(1, 2, last), dim{"", last})
		in := w.enter(w.input("x", w.typ, dims), w.row("bias", last))
		g := in[0]
		switch {
		case w.wrong("bias missing"):
		case w.wrong("bias taken away"):
			g = w.op("Sub", g, in[1])
		case w.wrong("bias multiplied"):
			g = w.op("Mul", g, in[1])
		default:
			g = w.sum(g, in[1])
		}
		if form != "sigmoid" {
			return []*onnx.Value{w.gelu(g, w.typ, form == "tanh")}
		}
		alpha := choose(w, 1.702, 0.5, 2)
		if w.wrong("negative factor") {
			alpha = -alpha
		}
		s := w.sigmoid(w.product(g, w.scalar(w.typ, alpha)), w.typ)
		if w.wrong("sum instead of the product") {
			return []*onnx.Value{w.op("Add", g, s)}
		}
		return []*onnx.Value{w.product(g, s)}
	}
}

func (w *writer) gelu(x *onnx.Value, t onnx.DataType, tanh bool) *onnx.Value {
	if w.opset >= 20 && w.chance(3) {
		switch {
		case tanh:
			return w.op("Gelu", x, onnx.StringAttr("approximate", "tanh"))
		case w.chance(2):
			return w.op("Gelu", x, onnx.StringAttr("approximate", "none"))
		}
		return w.op("Gelu", x)
	}
	return w.product(w.geluFactors(x, t, tanh)...)
}

// geluFactors are the factors of 0.5 x (1 + tanh(…)) or 0.5 x (1 + erf(…)).
func (w *writer) geluFactors(x *onnx.Value, t onnx.DataType, tanh bool) []*onnx.Value {
	half, one := w.scalar(t, 0.5), w.scalar(t, 1)
	switch {
	case w.wrong("one instead of a half"):
		half = w.scalar(t, 1)
	case w.wrong("two instead of one"):
		one = w.scalar(t, 2)
	}
	var s *onnx.Value
	switch {
	case w.wrong("sigmoid instead of the function"):
		s = w.op("Sigmoid", x)
	case tanh && w.wrong("erf instead of tanh"):
		s = w.op("Erf", w.tanhArg(x, t))
	case tanh:
		s = w.op("Tanh", w.tanhArg(x, t))
	case w.wrong("tanh instead of erf"):
		s = w.op("Tanh", w.erfArg(x, t))
	default:
		s = w.op("Erf", w.erfArg(x, t))
	}
	if w.wrong("one less the function") {
		return []*onnx.Value{half, x, w.op("Sub", one, s)}
	}
	if w.wrong("no x in front") {
		return []*onnx.Value{half, w.sum(one, s)}
	}
	if w.change != "one instead of a half" && w.chance(4) {
		return []*onnx.Value{w.op("Div", x, w.scalar(t, 2)), w.sum(one, s)}
	}
	return []*onnx.Value{half, x, w.sum(one, s)}
}

func (w *writer) erfArg(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch {
	case w.wrong("erf of x"):
		return x
	case w.wrong("erf of x over two"):
		return w.op("Div", x, w.scalar(t, 2))
	case w.wrong("erf of a greater x"):
		return w.op("Mul", x, w.scalar(t, 0.75))
	}
	if w.chance(2) {
		return w.op("Div", x, w.scalar(t, math.Sqrt2))
	}
	return w.product(x, w.scalar(t, math.Sqrt2/2))
}

func (w *writer) tanhArg(x *onnx.Value, t onnx.DataType) *onnx.Value {
	outer, inner := math.Sqrt(2/math.Pi), 0.044715
	switch {
	case w.wrong("another factor before tanh"):
		outer = choose(w, 0.7, 0.85, 1)
	case w.wrong("another factor of the cube"):
		inner = choose(w, 0.1, 0.02, 0.0715)
	case w.wrong("square instead of the cube"):
		return w.product(w.scalar(t, outer), w.sum(x, w.product(w.scalar(t, inner), x, x)))
	case w.wrong("fourth power instead of the cube"):
		return w.product(w.scalar(t, outer), w.sum(x, w.product(w.scalar(t, inner), x, w.op("Pow", x, w.scalar(t, 3)))))
	case w.wrong("difference in the polynomial"):
		return w.product(w.scalar(t, outer), w.op("Sub", x, w.product(w.scalar(t, inner), x, x, x)))
	}
	a, b := w.scalar(t, outer), w.scalar(t, inner)
	switch w.r.IntN(6) {
	case 0:
		return w.product(a, x, w.sum(w.scalar(t, 1), w.product(b, x, x)))
	case 1:
		return w.product(a, x, w.sum(w.scalar(t, 1), w.product(b, w.op("Pow", x, w.scalar(t, 2)))))
	case 2:
		return w.product(a, w.sum(x, w.product(b, x, x, x)))
	case 3:
		return w.product(a, w.sum(x, w.product(b, x, w.op("Pow", x, w.scalar(t, 2)))))
	}
	return w.product(a, w.sum(x, w.product(b, w.op("Pow", x, w.scalar(t, 3)))))
}
