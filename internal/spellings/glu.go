package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// gated declares gate and up: two inputs, or the halves of one.
func (w *writer) gated(interleaved bool) (gate, up *onnx.Value, rank int) {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 2, last), dim{"", last})
	rank = len(dims)
	if w.chance(2) {
		wide := append(append([]dim{}, dims[:rank-1]...), dim{"", 2 * last})
		x := w.enter(w.input("x", w.typ, wide))[0]
		c := channels{w, rank, 2 * last}
		if interleaved {
			return c.every(x, 2, 0), c.every(x, 2, 1), rank
		}
		parts := c.cut(x, last, last)
		return parts[0], parts[1], rank
	}
	other := dims
	if !w.symbol && w.wrong("up of one row") {
		other = append([]dim{}, dims...)
		other[rank-2] = dim{"", 1}
	}
	in := w.enter(w.input("gate", w.typ, dims), w.input("up", w.typ, other))
	return in[0], in[1], rank
}

// wider computes f in float32 if x has a half type, or keeps x's type.
func (w *writer) wider(x *onnx.Value, f func(x *onnx.Value, t onnx.DataType) *onnx.Value) *onnx.Value {
	if w.half() && w.chance(3) {
		return w.cast(f(w.cast(x, onnx.Float), onnx.Float), w.typ)
	}
	return f(x, w.typ)
}

func (w *writer) negated(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch w.r.IntN(5) {
	case 0:
		return w.op("Mul", x, w.scalar(t, -1))
	case 1:
		return w.op("Sub", w.scalar(t, 0), x)
	case 2:
		return w.op("Div", x, w.scalar(t, -1))
	}
	return w.op("Neg", x)
}

// sigmoid writes 1 / (1 + exp(-x)).
func (w *writer) sigmoid(x *onnx.Value, t onnx.DataType) *onnx.Value {
	switch {
	case w.wrong("tanh instead of the sigmoid"):
		return w.op("Tanh", x)
	case w.wrong("hard sigmoid"):
		return w.op("HardSigmoid", x)
	case w.wrong("sigmoid twice"):
		return w.op("Sigmoid", w.op("Sigmoid", x))
	case w.wrong("one less the sigmoid"):
		return w.op("Sub", w.scalar(t, 1), w.op("Sigmoid", x))
	case w.wrong("exponential instead of the sigmoid"):
		return w.op("Exp", w.op("Neg", x))
	case w.wrong("two plus the exponential"):
		return w.op("Reciprocal", w.sum(w.scalar(t, 2), w.op("Exp", w.op("Neg", x))))
	}
	if w.chance(3) {
		d := w.onePlusExp(x, t)
		if w.chance(2) {
			return w.op("Reciprocal", d)
		}
		return w.op("Div", w.scalar(t, 1), d)
	}
	return w.op("Sigmoid", x)
}

func (w *writer) onePlusExp(x *onnx.Value, t onnx.DataType) *onnx.Value {
	return w.sum(w.scalar(t, 1), w.op("Exp", w.negated(x, t)))
}

// gluEdits offers the edits of every gated unit: another argument of the activation, another combination.
func (w *writer) gluEdits(gate, up *onnx.Value, activated func(*onnx.Value) *onnx.Value) *onnx.Value {
	switch {
	case w.wrong("up missing"):
		return activated(gate)
	case w.wrong("magnitude of the activation"):
		return w.op("Mul", w.op("Abs", activated(gate)), up)
	case w.wrong("sum instead of the product"):
		return w.op("Add", activated(gate), up)
	case w.wrong("quotient instead of the product"):
		return w.op("Div", activated(gate), w.op("Exp", up))
	case w.wrong("activation of both"):
		return activated(w.op("Mul", gate, up))
	case w.wrong("activation of a shifted gate, times the gate"):
		return w.op("Mul", w.op("Mul", w.op("Sigmoid", w.op("Add", gate, w.scalar(w.typ, 0.5))), gate), up)
	case w.wrong("channels of the gate reversed in the sigmoid"):
		last := w.ints(-1)
		return w.product(w.op("Sigmoid", w.op("Slice", gate, last, w.ints(math.MinInt64), last, last)), gate, up)
	}
	return nil
}

func writeSwiGLU(w *writer) []*onnx.Value {
	gate, up, _ := w.gated(false)
	silu := func(x *onnx.Value) *onnx.Value {
		return w.wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value { return w.op("Mul", x, w.sigmoid(x, t)) })
	}
	if y := w.gluEdits(gate, up, silu); y != nil {
		return []*onnx.Value{y}
	}
	var y *onnx.Value
	switch w.r.IntN(4) {
	case 0:
		y = w.product(silu(gate), up)
	case 1: // x / (1 + exp(-x))
		a := w.wider(gate, func(x *onnx.Value, t onnx.DataType) *onnx.Value {
			d := w.onePlusExp(x, t)
			if w.wrong("divided by itself") {
				x = d
			}
			return w.op("Div", x, d)
		})
		y = w.product(a, up)
	default:
		y = w.product(gate, up, w.sigmoid(gate, w.typ))
	}
	return []*onnx.Value{y}
}

// writeQuickGLU writes SwiGLU with a factor inside the sigmoid.
func writeQuickGLU(w *writer) []*onnx.Value {
	gate, up, _ := w.gated(false)
	inner := func(x *onnx.Value) *onnx.Value {
		return w.op("Mul", w.product(x, w.scalar(w.typ, choose(w, 1.702, 0.5, 2))), w.sigmoid(x, w.typ))
	}
	if w.wrong("factor outside the sigmoid") {
		return []*onnx.Value{w.op("Mul", inner(gate), up)}
	}
	alpha := choose(w, 1.702, 0.5, 2)
	if w.wrong("negative factor") {
		alpha = -alpha
	}
	silu := func(x *onnx.Value) *onnx.Value {
		return w.wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value {
			return w.product(x, w.sigmoid(w.product(x, w.scalar(t, alpha)), t))
		})
	}
	if y := w.gluEdits(gate, up, silu); y != nil {
		return []*onnx.Value{y}
	}
	if w.chance(2) {
		return []*onnx.Value{w.product(silu(gate), up)}
	}
	return []*onnx.Value{w.product(gate, up, w.sigmoid(w.product(gate, w.scalar(w.typ, alpha)), w.typ))}
}

// writeSwish writes the op Swish of opset 24 and its product with up, or SwiGLU of opset 28.
func writeSwish(w *writer) []*onnx.Value {
	gate, up, _ := w.gated(false)
	var alpha []any
	if a := choose(w, 0, 1, 1.702, 0.5); a != 0 {
		alpha = []any{onnx.FloatAttr("alpha", float32(a))}
	}
	if w.wrong("negative factor") {
		alpha = []any{onnx.FloatAttr("alpha", -1)}
	}
	swish := func(x *onnx.Value) *onnx.Value { return w.op("Swish", append([]any{x}, alpha...)...) }
	if y := w.gluEdits(gate, up, swish); y != nil {
		return []*onnx.Value{y}
	}
	if w.opset >= 28 && w.chance(2) {
		return []*onnx.Value{w.op("SwiGLU", append([]any{gate, up}, alpha...)...)}
	}
	return []*onnx.Value{w.product(swish(gate), up)}
}

// clamp limits x on both sides, by Clip or by Min and Max.
func (w *writer) clamp(x *onnx.Value, low, high *onnx.Value) *onnx.Value {
	switch w.r.IntN(4) {
	case 0:
		return w.op("Min", w.op("Max", x, low), high)
	case 1:
		return w.op("Max", w.op("Min", x, high), low)
	}
	return w.op("Clip", x, low, high)
}

// clamping holds the limit, the sigmoid's factor and the offset of a clamped unit.
type clamping struct{ limit, alpha, offset float64 }

func newClamping(w *writer) clamping {
	return clamping{choose(w, 7.0, 1.0, 0.75), choose(w, 1.702, 1.0, 2), choose(w, 1.0, 0.5, 0)}
}

func writeClampedSwiGLU(w *writer) []*onnx.Value {
	gate, up, _ := w.gated(w.chance(2))
	return []*onnx.Value{w.clampedSwiGLU(gate, up, newClamping(w))}
}

// clampedSwiGLU limits gate from above and up on both sides, adds the offset to up, and has a factor inside the
// sigmoid.
func (w *writer) clampedSwiGLU(gate, up *onnx.Value, by clamping) *onnx.Value {
	limit, alpha, offset := by.limit, by.alpha, by.offset
	bound := func(x float64) *onnx.Value { return w.floats(w.typ, []int{}, []float64{x}) }
	g := gate
	switch {
	case w.wrong("gate clamped on the wrong side"):
		g = w.op("Max", g, bound(limit))
	case w.wrong("gate clamped on both sides"):
		g = w.op("Clip", g, bound(-limit/4), bound(limit))
	case w.wrong("gate clamped at another limit"):
		g = w.op("Min", g, bound(limit/2))
	case w.wrong("gate not clamped"):
	case w.chance(2):
		g = w.op("Min", g, bound(limit))
	case w.chance(3): // a bound without effect
		g = w.op("Clip", g, bound(-greatest[w.typ]), bound(limit))
	default:
		g = w.op("Clip", g, omitted, bound(limit))
	}
	u := up
	switch {
	case w.wrong("up clamped only from above"):
		u = w.op("Min", u, bound(limit))
	case w.wrong("up clamped unevenly"):
		u = w.clamp(u, bound(-limit/4), bound(limit))
	case w.wrong("up not clamped"):
	default:
		u = w.clamp(u, bound(-limit), bound(limit))
	}
	if w.wrong("up shifted from row to row") {
		u = w.op("Add", u, w.op("Sin", w.reduce("ReduceMax", gate, []int64{-1}, true)))
	} else if offset != 0 {
		u = w.sum(u, w.scalar(w.typ, offset))
	}
	s := g
	if alpha != 1 {
		s = w.product(g, w.scalar(w.typ, alpha))
	}
	if w.wrong("sigmoid of the gate before it was clamped") {
		s = w.op("Mul", gate, w.scalar(w.typ, alpha))
	}
	s = w.sigmoid(s, w.typ)
	if y := w.gluEdits(g, u, func(x *onnx.Value) *onnx.Value { return w.op("Mul", x, s) }); y != nil {
		return y
	}
	return w.product(u, g, s)
}

var greatest = map[onnx.DataType]float64{onnx.Float: math.MaxFloat32, onnx.Float16: 65504, onnx.BFloat16: 0x1.fep127}
